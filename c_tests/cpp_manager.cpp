// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::AsyncMRManager: regions and errors through futures, from every form of the call. F74.
#include "cpp.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>

namespace {

using amr::access; // here, since POSIX has a function of that name
using region_future = std::future<amr::shared_region>;

char memory[8 * 4096];

void check_future(amr::AsyncMRManager &manager) {
    region_future future = manager.register_memory(memory, sizeof(memory), test::rights);
    const amr::shared_region region = future.get();
    CHECK(region->addr() == memory);
    CHECK_EQ(region->length(), sizeof(memory));
    CHECK_EQ(region.use_count(), 1);
}

template <typename Memory>
void check_holder(amr::AsyncMRManager &manager, Memory &&holder, const void *addr,
                  std::size_t length, access rights) {
    const auto region = manager.register_memory(holder, rights).get();
    CHECK(region->addr() == addr);
    CHECK_EQ(region->length(), length);
}

void check_holders(amr::AsyncMRManager &manager) {
    std::vector<double> vector(1000);
    std::array<int, 300> array{};
    std::string text(5000, 'x');
    std::uint16_t plain[77];
    const std::vector<char> constant(4096);

    check_holder(manager, vector, vector.data(), 8000, test::rights);
    check_holder(manager, array, array.data(), 1200, test::rights);
    check_holder(manager, text, text.data(), 5000, access::remote_read);
    check_holder(manager, plain, plain, 154, test::rights);
    check_holder(manager, constant, constant.data(), 4096, access::remote_read);
    check_holder(manager, amr::buffer(memory, 100), memory, 100, test::rights);
#if __cplusplus >= 202002L
    check_holder(manager, std::span(vector).subspan(10, 20), &vector[10], 160, test::rights);
#endif
    const amr::error error = test::thrown(std::errc::invalid_argument, [&] {
        (void)manager.register_memory(constant, test::rights);
    });
    CHECK(std::strstr(error.what(), "const") != nullptr);
    static_assert(!std::is_constructible<amr::buffer, std::vector<char>>::value,
                  "not the memory of a temporary");
}

// It is refused, and the error says why.
template <typename Call> void refused(const char *why, Call call) {
    const amr::error error = test::thrown(std::errc::invalid_argument, call);
    if (std::strstr(error.what(), why) == nullptr)
        FAIL("'%s' does not say '%s'", error.what(), why);
}

void check_refusals(amr::AsyncMRManager &manager) {
    const uint64_t calls = sim_counts().reg_calls;
    void *const last = reinterpret_cast<void *>(UINTPTR_MAX - 4095);
    void *const none = nullptr;
    refused("length is 0", [&] { (void)manager.register_memory(memory, 0, test::rights); });
    refused("need local_write",
            [&] { (void)manager.register_memory(memory, access::remote_write); });
    refused("address is null", [&] { (void)manager.register_memory(none, 4096, test::rights); });
    refused("beyond the end", [&] { (void)manager.register_memory(last, 8192, test::rights); });
    refused("length is 0", [&] {
        (void)manager.register_memory(memory, 0, test::rights, [](amr::shared_region) {});
    });
    CHECK_EQ(sim_counts().reg_calls, calls);
}

void check_failure(amr::AsyncMRManager &manager) {
    CHECK_EQ(sim_configure("fail_nth=1:ENOMEM"), 0);
    region_future future = manager.register_memory(memory, test::rights);
    test::thrown(std::errc::not_enough_memory, [&] { future.get(); });
    manager.register_memory(memory, test::rights).get();
    reset_sim();
}

void check_full(const amr::RDMAContext &context) {
    amr::AsyncMRManager manager(context, 1, 2);
    std::vector<region_future> futures;

    sim_gate_close(SIM_REG);
    futures.push_back(manager.register_memory(memory, test::rights));
    wait_running(1);
    futures.push_back(manager.register_memory(memory, test::rights));
    futures.push_back(manager.register_memory(memory, test::rights));
    test::thrown(std::errc::resource_unavailable_try_again,
                 [&] { (void)manager.register_memory(memory, test::rights); });
    sim_gate_open();
    for (region_future &future : futures)
        future.get();
    manager.register_memory(memory, test::rights).get();
}

// A future that nobody wants: its region is deregistered as soon as it comes.
void check_dropped(amr::AsyncMRManager &manager) {
    const uint64_t before = sim_counts().live_mrs;
    sim_gate_close(SIM_REG);
    for (int i = 0; i < 10; i++) {
        (void)manager.register_memory(memory, test::rights);
        (void)manager.register_memory(memory, test::rights, [](amr::shared_region) { return 1; });
    }
    sim_gate_open();
    manager.engine().drain();
    CHECK_EQ(sim_counts().live_mrs, before);
    // And one that is dropped when it is ready.
    {
        region_future future = manager.register_memory(memory, test::rights);
        future.wait();
        CHECK_EQ(sim_counts().live_mrs, before + 1);
    }
    manager.engine().drain(); // the worker may have let go after this thread
    CHECK_EQ(sim_counts().live_mrs, before);
}

void check_batch(amr::AsyncMRManager &manager) {
    std::vector<std::vector<char>> buffers(20);
    for (std::size_t i = 0; i < buffers.size(); i++)
        buffers[i].resize(4096 + i);
    const uint64_t submitted = manager.engine().stats().submitted;
    auto futures = manager.register_batch(buffers, test::rights);
    CHECK_EQ(futures.size(), buffers.size());
    CHECK_EQ(manager.engine().stats().submitted, submitted + 20);
    for (std::size_t i = 0; i < buffers.size(); i++) {
        const auto region = futures[i].get();
        CHECK(region->addr() == buffers[i].data());
        CHECK_EQ(region->length(), 4096 + i);
    }
    CHECK_EQ(manager.register_batch(std::vector<amr::buffer>(), test::rights).size(), 0);
    CHECK(manager.register_batch({amr::buffer(memory), amr::buffer(buffers[0])}, test::rights)[1]
              .get()
              ->addr() == buffers[0].data());
}

// A wrong one in the middle does not stop the others.
void check_batch_refusals(const amr::RDMAContext &context) {
    amr::AsyncMRManager manager(context, 1, 4);
    const amr::buffer good(memory), wrong(memory, 0);
    auto futures = manager.register_batch({good, wrong, wrong, good}, test::rights);
    futures[0].get();
    refused("length is 0", [&] { futures[1].get(); });
    test::thrown(std::errc::invalid_argument, [&] { futures[2].get(); });
    futures[3].get();

    sim_gate_close(SIM_REG);
    auto running = manager.register_memory(memory, test::rights);
    wait_running(1);
    futures = manager.register_batch(std::vector<amr::buffer>(6, good), test::rights);
    sim_gate_open();
    for (int i = 0; i < 4; i++)
        futures[i].get();
    for (int i = 4; i < 6; i++)
        test::thrown(std::errc::resource_unavailable_try_again, [&] { futures[i].get(); });

    const std::vector<char> constant(10);
    const uint64_t calls = sim_counts().reg_calls;
    test::thrown(std::errc::invalid_argument, [&] {
        (void)manager.register_batch({good, amr::buffer(constant)}, test::rights);
    });
    manager.engine().drain();
    CHECK_EQ(sim_counts().reg_calls, calls);
}

struct Thrown : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check_callables(amr::AsyncMRManager &manager) {
    std::thread::id where;
    auto key = manager.register_memory(memory, test::rights, [&](amr::shared_region region) {
        where = std::this_thread::get_id();
        return region->rkey();
    });
    CHECK(key.get() != 0);
    CHECK(where != std::this_thread::get_id());

    amr::shared_region kept;
    manager
        .register_memory(memory, sizeof(memory), test::rights,
                         [&](amr::shared_region region) { kept = std::move(region); })
        .get();
    CHECK(kept->addr() == memory);
    int value = 0;
    int &reference =
        manager
            .register_memory(memory, test::rights,
                             [&](const amr::shared_region &) -> int & { return value; })
            .get();
    CHECK(&reference == &value);
}

// What it throws is thrown where the future is asked; the worker goes on, and the region goes.
void check_throwing(amr::AsyncMRManager &manager) {
    const uint64_t before = sim_counts().live_mrs;
    auto future = manager.register_memory(
        memory, test::rights, [](amr::shared_region) -> int { throw Thrown("from a callable"); });
    try {
        future.get();
        FAIL("nothing was thrown");
    } catch (const Thrown &thrown) {
        CHECK_STR(thrown.what(), "from a callable");
    }
    CHECK_EQ(sim_counts().live_mrs, before);
    auto odd = manager.register_memory(memory, test::rights, [](amr::shared_region) { throw 42; });
    try {
        odd.get();
        FAIL("nothing was thrown");
    } catch (int thrown) {
        CHECK_EQ(thrown, 42);
    }
    manager.register_memory(memory, test::rights).get();
}

// It is not called for a registration that failed or was refused, and what it holds is let go.
void check_uncalled(amr::AsyncMRManager &manager) {
    auto held = std::make_shared<int>(0);
    auto count = [held](amr::shared_region) { ++*held; };
    CHECK_EQ(sim_configure("fail_first=1"), 0);
    auto failed = manager.register_memory(memory, test::rights, count);
    test::thrown(std::errc::not_enough_memory, [&] { failed.get(); });
    test::thrown(std::errc::invalid_argument,
                 [&] { (void)manager.register_memory(memory, 0, test::rights, count); });
    CHECK_EQ(*held, 0);
    // And it is let go though the region lives on.
    amr::shared_region region;
    manager
        .register_memory(memory, test::rights,
                         [held, &region](amr::shared_region made) { region = std::move(made); })
        .get();
    CHECK_EQ(held.use_count(), 2);
    reset_sim();
}

// A result that is moved into the future when the worker has let go of all else.
struct Last {
    explicit Last(amr::shared_region &kept, std::shared_ptr<int> &held) : kept(kept), held(held) {}
    Last(Last &&other) noexcept : kept(other.kept), held(other.held) {
        CHECK_EQ(kept.use_count(), 1);
        CHECK_EQ(held.use_count(), 1);
    }
    amr::shared_region &kept;
    std::shared_ptr<int> &held;
};

void check_let_go(amr::AsyncMRManager &manager) {
    amr::shared_region kept;
    auto held = std::make_shared<int>(0);
    struct Callable {
        amr::shared_region &kept;
        std::shared_ptr<int> &held;
        std::shared_ptr<int> own;
        Last operator()(amr::shared_region region) {
            kept = std::move(region);
            return Last(kept, held);
        }
    };
    std::future<Last> future =
        manager.register_memory(memory, test::rights, Callable{kept, held, held});
    future.wait();
}

// A callable that can only be moved, and posts more from the worker.
void check_chain(amr::AsyncMRManager &manager) {
    struct MoveOnly {
        std::unique_ptr<int> number;
        amr::AsyncMRManager *manager;
        region_future operator()(amr::shared_region) {
            CHECK_EQ(*number, 7);
            return manager->register_memory(memory, test::rights);
        }
    };
    MoveOnly first{std::unique_ptr<int>(new int(7)), &manager};
    std::future<region_future> future =
        manager.register_memory(memory, test::rights, std::move(first));
    CHECK(future.get().get()->addr() == memory);
}

// A region outlives the manager, with the device.
void check_outliving() {
    amr::shared_region region;
    const uint64_t contexts = sim_counts().live_contexts;
    {
        amr::RDMAContext context;
        amr::AsyncMRManager manager(context, 2);
        region = manager.register_memory(memory, test::rights).get();
    }
    CHECK_EQ(sim_counts().live_contexts, contexts + 1);
    CHECK_EQ(region->length(), sizeof(memory));
    region->deregister();
    CHECK_EQ(sim_counts().live_contexts, contexts);
}

void check_moves(const amr::RDMAContext &context) {
    amr::AsyncMRManager one(context, 1);
    amr::AsyncMRManager two(std::move(one));
    test::thrown(std::errc::invalid_argument,
                 [&] { (void)one.register_memory(memory, test::rights); });
    test::thrown(std::errc::invalid_argument,
                 [&] { (void)one.register_batch({amr::buffer(memory)}, test::rights); });
    auto future = two.register_memory(memory, test::rights);
    one = std::move(two);
    future.get();
    one.register_memory(memory, test::rights).get();
    one = amr::AsyncMRManager(context, 1);
    one.register_memory(memory, test::rights).get();
}

} // namespace

int main() {
    test::Sim sim;
    amr::RDMAContext context;
    {
        amr::AsyncMRManager manager(context, 2);
        check_future(manager);
        check_holders(manager);
        check_refusals(manager);
        check_failure(manager);
        check_dropped(manager);
        check_batch(manager);
        check_callables(manager);
        check_throwing(manager);
        check_uncalled(manager);
        check_let_go(manager);
        check_chain(manager);
    }
    check_full(context);
    check_batch_refusals(context);
    check_outliving();
    check_moves(context);
    test::thrown(std::errc::invalid_argument,
                 [&] { amr::AsyncMRManager manager(context, AMR_MAX_WORKERS + 1); });
    return 0;
}
