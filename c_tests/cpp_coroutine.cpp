// SPDX-License-Identifier: MIT OR Apache-2.0
// co_await: where a coroutine goes on, what it gets, and how it may end.
#include "cpp.hpp"

#if !defined(AMR_HAS_COROUTINES)

int main() {
    skip("this compiler has no coroutines");
}

#else

#include <atomic>
#include <coroutine>
#include <exception>
#include <optional>
#include <poll.h>

namespace {

char memory[4 * 4096];

// A coroutine that runs at once; destroyed with its owner.
struct Task {
    struct promise_type {
        std::atomic<bool> is_done{false};

        Task get_return_object() {
            return Task{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_never initial_suspend() noexcept {
            return {};
        }
        auto final_suspend() noexcept {
            struct Last {
                bool await_ready() noexcept {
                    return false;
                }
                void await_suspend(std::coroutine_handle<promise_type> handle) noexcept {
                    handle.promise().is_done = true;
                    handle.promise().is_done.notify_all();
                }
                void await_resume() noexcept {}
            };
            return Last{};
        }
        void return_void() {}
        void unhandled_exception() {
            FAIL("an exception left the coroutine");
        }
    };

    explicit Task(std::coroutine_handle<promise_type> handle) : handle(handle) {}
    Task(Task &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    Task &operator=(Task &&) = delete;
    ~Task() {
        if (handle)
            handle.destroy();
    }

    bool is_done() const {
        return handle.promise().is_done;
    }
    void wait() const {
        handle.promise().is_done.wait(false);
    }

    std::coroutine_handle<promise_type> handle;
};

struct Result {
    std::optional<amr::MemoryRegion> region;
    std::error_code code;
    std::thread::id thread;
};

Task register_on_worker(amr::AsyncMRManager &manager, Result &result,
                        amr::options how = test::rights) {
    try {
        result.region = co_await manager.register_async(memory, how);
    } catch (const amr::error &error) {
        result.code = error.code();
    }
    result.thread = std::this_thread::get_id();
}

Task register_in_loop(amr::AsyncMRManager &manager, amr::PollLoop &loop, Result &result) {
    try {
        result.region = co_await manager.register_async(memory, sizeof(memory), test::rights, loop);
    } catch (const amr::error &error) {
        result.code = error.code();
    }
    result.thread = std::this_thread::get_id();
}

void check_worker(amr::AsyncMRManager &manager) {
    Result result;
    const Task task = register_on_worker(manager, result);
    task.wait();
    CHECK(result.region && result.region->addr() == memory);
    CHECK(result.thread != std::this_thread::get_id());
}

Task await_twice(amr::AsyncMRManager &manager, Result &result) {
    try {
        auto registration = manager.register_async(memory, test::rights);
        result.region = co_await registration;
        co_await registration;
    } catch (const amr::error &error) {
        result.code = error.code();
    }
}

void check_awaited_twice(amr::AsyncMRManager &manager) {
    Result result;
    const Task task = await_twice(manager, result);
    task.wait();
    CHECK(result.region);
    CHECK(result.code == std::errc::invalid_argument);
}

Task end_the_loop(amr::AsyncMRManager &manager, std::optional<amr::PollLoop> &loop) {
    co_await manager.register_async(memory, test::rights, *loop);
    loop.reset();
}

// By a coroutine that it lets go on, with others to come and others still under way.
void check_loop_that_ends_itself(amr::AsyncMRManager &manager) {
    std::optional<amr::PollLoop> loop(std::in_place, manager.engine());
    Result results[4];
    std::vector<Task> tasks;
    tasks.push_back(end_the_loop(manager, loop));
    for (int i = 0; i < 2; i++)
        tasks.push_back(register_in_loop(manager, *loop, results[i]));
    manager.engine().drain();
    CHECK_EQ(sim_configure("reg_delay_us=1000"), 0);
    for (int i = 2; i < 4; i++)
        tasks.push_back(register_in_loop(manager, *loop, results[i]));
    CHECK(loop->poll() >= 3);
    CHECK(!loop);
    for (const Task &task : tasks)
        CHECK(task.is_done());
    for (const Result &result : results)
        CHECK(result.region);
    reset_sim();
}

// A flag that there is not.
void check_hints(amr::AsyncMRManager &manager) {
    Result result;
    const Task task = register_on_worker(manager, result, {test::rights, 1U << 31});
    CHECK(task.is_done());
    CHECK(result.code == std::errc::invalid_argument);
}

void check_loop(amr::AsyncMRManager &manager) {
    amr::PollLoop loop(manager.engine());
    Result result;
    const Task task = register_in_loop(manager, loop, result);
    struct pollfd entry = {loop.fd(), POLLIN, 0};
    while (poll(&entry, 1, -1) != 1) {
    }
    CHECK(!task.is_done());
    CHECK_EQ(loop.poll(), 1);
    CHECK(task.is_done());
    CHECK(result.region && result.region->addr() == memory);
    CHECK(result.thread == std::this_thread::get_id());
    CHECK_EQ(loop.poll(), 0);
    CHECK_EQ(loop.wait(std::chrono::milliseconds(1)), 0);
}

void check_errors(amr::AsyncMRManager &manager) {
    Result on_worker, in_loop;
    amr::PollLoop loop(manager.engine());
    CHECK_EQ(sim_configure("fail_first=2:EFAULT"), 0);
    {
        const Task one = register_on_worker(manager, on_worker);
        const Task two = register_in_loop(manager, loop, in_loop);
        one.wait();
        CHECK_EQ(loop.wait(), 1);
    }
    CHECK(on_worker.code == std::errc::bad_address);
    CHECK(in_loop.code == std::errc::bad_address);
    reset_sim();

    // What is refused is thrown at once, in the coroutine.
    amr::PollLoop full(manager.engine(), 1);
    Result first, second;
    sim_gate_close(SIM_REG);
    const Task one = register_in_loop(manager, full, first);
    const Task two = register_in_loop(manager, full, second);
    CHECK(two.is_done());
    CHECK(second.code == std::errc::resource_unavailable_try_again);
    sim_gate_open();
    CHECK_EQ(full.wait(), 1);
    CHECK(first.region);
}

// Several, one after the other, in one coroutine, from both places.
void check_chain(amr::AsyncMRManager &manager) {
    amr::PollLoop loop(manager.engine());
    int count = 0;
    const Task task = [](amr::AsyncMRManager &manager, amr::PollLoop &loop, int &count) -> Task {
        for (int i = 0; i < 50; i++) {
            amr::MemoryRegion one = co_await manager.register_async(memory, test::rights);
            amr::MemoryRegion two = co_await manager.register_async(memory, test::rights, loop);
            CHECK(one.raw() != two.raw());
            count++;
        }
    }(manager, loop, count);
    while (!task.is_done())
        loop.wait(std::chrono::milliseconds(10));
    CHECK_EQ(count, 50);
}

// Destroyed while they wait: the regions are deregistered when they come.
void check_destruction(amr::AsyncMRManager &manager) {
    const uint64_t before = sim_counts().live_mrs;
    Result result;
    amr::PollLoop loop(manager.engine());
    sim_gate_close(SIM_REG);
    {
        const Task one = register_on_worker(manager, result);
        const Task two = register_in_loop(manager, loop, result);
    }
    sim_gate_open();
    CHECK_EQ(loop.wait(), 1);
    manager.engine().drain();
    CHECK(!result.region && !result.code);
    CHECK_EQ(sim_counts().live_mrs, before);
}

// A loop ends: what waits for it goes on in its destructor, though nobody has polled.
void check_end_of_loop(amr::AsyncMRManager &manager) {
    Result results[3];
    std::vector<Task> tasks;
    {
        amr::PollLoop loop(manager.engine());
        CHECK_EQ(sim_configure("reg_delay_us=1000"), 0);
        for (Result &result : results)
            tasks.push_back(register_in_loop(manager, loop, result));
    }
    for (Result &result : results) {
        CHECK(result.region);
        CHECK(result.thread == std::this_thread::get_id());
    }
    reset_sim();
}

// The same for one that awaits on it again then.
void check_again_at_the_end(amr::AsyncMRManager &manager) {
    int count = 0;
    std::optional<Task> task;
    {
        amr::PollLoop loop(manager.engine());
        task.emplace([](amr::AsyncMRManager &manager, amr::PollLoop &loop, int &count) -> Task {
            for (int i = 0; i < 3; i++) {
                (void)co_await manager.register_async(memory, test::rights, loop);
                count++;
            }
        }(manager, loop, count));
    }
    CHECK(task->is_done());
    CHECK_EQ(count, 3);
}

// A manager ends: what is queued goes on with an error, on its worker.
void check_end_of_manager(const amr::RDMAContext &context) {
    Result results[4];
    std::vector<Task> tasks;
    {
        amr::AsyncMRManager manager(context, 1);
        CHECK_EQ(sim_configure("reg_delay_us=5000"), 0);
        for (Result &result : results)
            tasks.push_back(register_on_worker(manager, result));
    }
    for (Result &result : results)
        CHECK(result.region || result.code == std::errc::operation_canceled);
    reset_sim();
}

} // namespace

int main() {
    test::Sim sim;
    amr::RDMAContext context;
    {
        amr::AsyncMRManager manager(context, 2);
        check_worker(manager);
        check_hints(manager);
        check_awaited_twice(manager);
        check_loop_that_ends_itself(manager);
        check_loop(manager);
        check_errors(manager);
        check_chain(manager);
        check_destruction(manager);
        check_end_of_loop(manager);
        check_again_at_the_end(manager);
    }
    check_end_of_manager(context);
    return 0;
}

#endif
