// SPDX-License-Identifier: MIT OR Apache-2.0
// Every allocation of the C++ layer fails once: the call throws std::bad_alloc and has changed
// nothing, or the future brings it. And how many allocations a request takes.
#include "cpp.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

namespace {

std::atomic<long> allocations{0}; // of all threads, libamr's own excepted
std::atomic<long> failing{0};     // the number of the one that fails; 0: none

} // namespace

// Not inline: a compiler that sees through them takes one for the wrong half of a pair.
__attribute__((noinline)) void *operator new(std::size_t size) {
    if (allocations.fetch_add(1) + 1 == failing.load())
        throw std::bad_alloc();
    if (void *memory = std::malloc(size))
        return memory;
    throw std::bad_alloc();
}

__attribute__((noinline)) void operator delete(void *memory) noexcept {
    std::free(memory);
}

__attribute__((noinline)) void operator delete(void *memory, std::size_t) noexcept {
    std::free(memory);
}

namespace {

char memory[4 * 4096];

// Runs `attempt` with its first, second, ... allocation failing until none of it fails.
void check_each(const char *what, const std::function<void()> &attempt) {
    const test::Account before = test::Account::now();
    for (long number = 1;; number++) {
        bool failed = false;
        allocations = 0;
        failing = number;
        try {
            attempt();
        } catch (const std::bad_alloc &) {
            failed = true;
        }
        const bool reached = allocations >= number;
        failing = 0;
        amr::Engine::default_engine().drain();
        test::Account::now().check_equal(before);
        CHECK_EQ(amr::destructor_failures(), 0);
        if (!reached) {
            if (failed)
                FAIL("%s: std::bad_alloc, though nothing failed", what);
            printf("%s: %ld allocations\n", what, number - 1);
            return;
        }
    }
}

void check_calls() {
    amr::RDMAContext context;
    amr::AsyncMRManager manager(context, 1);
    const std::vector<amr::buffer> buffers(5, amr::buffer(memory));
    std::vector<std::future<amr::shared_region>> dropped;

    check_each("RDMAContext", [] { amr::RDMAContext one; });
    check_each("RDMAContext by name", [] { amr::RDMAContext one("sim0"); });
    check_each("no such device", [] {
        try {
            amr::RDMAContext one("mlx5_0");
        } catch (const amr::error &) {
        }
    });
    check_each("borrow", [&] { amr::RDMAContext::borrow(context.pd()); });
    check_each("Engine", [] { amr::Engine engine(1); });
    check_each("AsyncMRManager", [&] { amr::AsyncMRManager one(context, 1); });
    check_each("CompletionQueue", [&] { amr::CompletionQueue queue(context, 4); });
    check_each("register_memory", [&] {
        amr::AsyncMRManager fresh(context, 1);
        fresh.register_memory(memory, test::rights).get();
    });
    check_each("register_memory, callable", [&] {
        amr::AsyncMRManager fresh(context, 1);
        std::vector<int> captured(3);
        fresh.register_memory(memory, test::rights, [captured](amr::shared_region) {}).get();
    });
    check_each("register_memory, callable that has no room in a block", [&] {
        amr::AsyncMRManager fresh(context, 1);
        const std::array<char, 500> captured{};
        fresh.register_memory(memory, test::rights, [captured](amr::shared_region) {}).get();
    });
    check_each("register_batch", [&] {
        amr::AsyncMRManager fresh(context, 1);
        for (auto &future : fresh.register_batch(buffers, test::rights))
            future.get();
    });
    check_each("a failed registration", [&] {
        CHECK_EQ(sim_configure("fail_first=1"), 0);
        amr::AsyncMRManager fresh(context, 1);
        auto future = fresh.register_memory(memory, test::rights);
        fresh.engine().drain();
        reset_sim();
        try {
            future.get();
        } catch (const amr::error &error) {
            CHECK(error.code() == std::errc::not_enough_memory);
        }
    });
    reset_sim();
    check_each("deregister_async", [&] {
        manager.register_memory(memory, test::rights).get()->deregister_async().get();
    });
}

// Of a request, when the manager has seen as many at once before.
void check_count() {
    amr::RDMAContext context;
    amr::AsyncMRManager manager(context, 2);
    const auto allocated = [&](int requests) {
        allocations = 0;
        std::vector<std::future<amr::shared_region>> futures;
        futures.reserve(requests);
        for (int i = 0; i < requests; i++)
            futures.push_back(manager.register_memory(memory, test::rights));
        for (auto &future : futures)
            future.get();
        manager.engine().drain();
        return allocations.load() - 1; // that of the vector
    };
    const long first = allocated(100);
    printf("100 requests: %ld allocations, then %ld\n", first, allocated(100));
    CHECK(first > 0 && first <= 100); // one for each, with all that its future takes
    if (AMR_REUSES_MEMORY)
        CHECK_EQ(allocated(100), 0);
}

} // namespace

int main() {
    test::Sim sim;

    check_calls();
    check_count();
    return 0;
}
