// SPDX-License-Identifier: MIT OR Apache-2.0
// Objects end in every order, at rest and with work queued and running: nothing hangs, nothing is
// left, no device call fails, and every future becomes ready.
#include "cpp.hpp"

#include <algorithm>
#include <functional>
#include <memory>

namespace {

char memory[4 * 4096];

// Ends each of the objects in every order; make() makes them anew.
void check_orders(const std::function<std::vector<std::function<void()>>()> &make) {
    std::vector<std::size_t> order(make().size());
    for (std::size_t i = 0; i < order.size(); i++)
        order[i] = i;
    const uint64_t before = sim_counts().live_contexts;
    do {
        const auto ends = make();
        for (std::size_t i : order)
            ends[i]();
        test::await([before] { return sim_counts().live_contexts == before; });
        CHECK_EQ(sim_counts().live_mrs + sim_counts().live_pds, 0);
        CHECK_EQ(amr::destructor_failures(), 0);
    } while (std::next_permutation(order.begin(), order.end()));
}

template <typename Object> std::shared_ptr<Object> shared(Object object) {
    return std::make_shared<Object>(std::move(object));
}

template <typename Object> std::function<void()> end_of(std::shared_ptr<Object> object) {
    auto holder = std::make_shared<std::shared_ptr<Object>>(std::move(object));
    return [holder] { holder->reset(); };
}

// Context, engine, manager, completion queue with something unread, and regions.
void check_at_rest() {
    check_orders([] {
        auto context = shared(amr::RDMAContext());
        auto engine = shared(amr::Engine(1));
        auto manager = shared(amr::AsyncMRManager(*context, 1));
        auto queue = shared(amr::CompletionQueue(*context, *engine, 4));
        queue->register_memory(memory, test::rights, 1);
        queue->register_memory(memory, test::rights, 2);
        amr::Completion completion;
        CHECK(queue->wait(completion));
        auto value = shared(std::move(completion.region()));
        auto region = manager->register_memory(memory, test::rights).get();
        return std::vector<std::function<void()>>{
            end_of(std::move(context)), end_of(std::move(engine)), end_of(std::move(manager)),
            end_of(std::move(queue)),   end_of(std::move(value)),  end_of(std::move(region))};
    });
}

// The same with a future that nobody has asked, and one that becomes ready meanwhile.
void check_at_work() {
    check_orders([] {
        CHECK_EQ(sim_configure("reg_delay_us=500,dereg_delay_us=200"), 0);
        auto context = shared(amr::RDMAContext());
        auto manager = shared(amr::AsyncMRManager(*context, 1));
        auto queue = shared(amr::CompletionQueue(*context, manager->engine(), 4));
        auto future = shared(manager->register_memory(memory, test::rights));
        auto later = shared(manager->register_memory(memory, test::rights));
        auto called =
            shared(manager->register_memory(memory, test::rights, [](amr::shared_region) {}));
        queue->register_memory(memory, test::rights, 1);
        return std::vector<std::function<void()>>{
            end_of(std::move(context)), end_of(std::move(manager)), end_of(std::move(queue)),
            end_of(std::move(future)),  end_of(std::move(later)),   end_of(std::move(called))};
    });
    reset_sim();
}

// What is queued is cancelled, what runs goes on, and the destructor waits for it.
void check_end_of_manager() {
    amr::RDMAContext context;
    std::vector<std::future<amr::shared_region>> futures;
    auto manager = shared(amr::AsyncMRManager(context, 1));

    sim_gate_close(SIM_REG);
    for (int i = 0; i < 20; i++)
        futures.push_back(manager->register_memory(memory, test::rights));
    wait_running(1);
    std::thread opener([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        sim_gate_open();
    });
    manager.reset();
    CHECK_EQ(sim_counts().running, 0);
    opener.join();
    int cancelled = 0;
    for (auto &future : futures) {
        CHECK(future.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
        try {
            CHECK(future.get()->addr() == memory);
        } catch (const amr::error &error) {
            CHECK(error.code() == std::errc::operation_canceled);
            cancelled++;
        }
    }
    // The gate may have opened before the manager began to end.
    CHECK(cancelled < 20);
}

// Where its engine lives on, what is queued is performed before the manager is gone.
void check_end_of_sharing_manager() {
    amr::RDMAContext context;
    std::vector<std::future<amr::shared_region>> futures;
    auto manager = shared(amr::AsyncMRManager(context, 1));
    amr::CompletionQueue queue(context, manager->engine(), 1);

    CHECK_EQ(sim_configure("reg_delay_us=2000"), 0);
    for (int i = 0; i < 5; i++)
        futures.push_back(manager->register_memory(memory, test::rights));
    manager.reset();
    for (auto &future : futures) {
        CHECK(future.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
        future.get();
    }
    reset_sim();
}

// The last owner of a manager is a callable of its own, which runs on its worker.
void check_end_in_callable() {
    amr::RDMAContext context;
    const int workers = count_workers();
    for (int i = 0; i < 20; i++) {
        auto manager = shared(amr::AsyncMRManager(context, 1));
        amr::AsyncMRManager &used = *manager;
        auto future = used.register_memory(memory, test::rights, [manager](amr::shared_region) {});
        auto later = used.register_memory(memory, test::rights);
        manager.reset();
        future.get();
        later.wait();
    }
    wait_workers(workers);
}

// And the last owner of a completion queue, with something under way on it.
void check_queue_in_callable() {
    amr::RDMAContext context;
    const int workers = count_workers();
    {
        amr::AsyncMRManager manager(context, 1);
        auto queue = shared(amr::CompletionQueue(context, manager.engine(), 4));
        auto future = manager.register_memory(memory, test::rights, [queue](amr::shared_region) {
            queue->register_memory(memory, test::rights, 1);
        });
        queue.reset();
        future.get();
    }
    wait_workers(workers);
    test::await_mrs(0);
}

// An engine of which only a region that is being deregistered knows.
void check_end_of_engine() {
    amr::RDMAContext context;
    amr::MemoryRegion region;
    {
        amr::AsyncMRManager manager(context, 1);
        region = std::move(*manager.register_memory(memory, test::rights).get());
    }
    std::future<void> future;
    {
        amr::Engine engine(1);
        CHECK_EQ(sim_configure("dereg_delay_us=2000"), 0);
        future = region.deregister_async(engine);
    }
    try {
        future.get();
        CHECK(!region);
    } catch (const amr::error &error) {
        CHECK(error.code() == std::errc::operation_canceled);
        CHECK(region);
    }
    reset_sim();
}

} // namespace

int main() {
    test::Sim sim;

    check_at_rest();
    check_at_work();
    check_end_of_manager();
    check_end_of_sharing_manager();
    check_end_in_callable();
    check_queue_in_callable();
    check_end_of_engine();
    return 0;
}
