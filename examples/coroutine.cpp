// SPDX-License-Identifier: MIT OR Apache-2.0
//
// coroutine [DEVICE]: four coroutines register and deregister memory, one after the other each,
// all in one thread: each goes on in the poll loop when its region is there. C++20.
#include <amr/amr.hpp>
#include <coroutine>
#include <exception>
#include <iostream>
#include <vector>

namespace {

// The simplest kind of coroutine: it starts at once, and nobody waits for it. A program has one
// from its own library of tasks.
struct detached {
    struct promise_type {
        detached get_return_object() {
            return {};
        }
        std::suspend_never initial_suspend() noexcept {
            return {};
        }
        std::suspend_never final_suspend() noexcept {
            return {};
        }
        void return_void() {}
        void unhandled_exception() {
            std::terminate();
        }
    };
};

const std::size_t buffer_size = 1 << 20;
const int rounds = 8;

struct Program {
    amr::RDMAContext &context;
    amr::AsyncMRManager manager{context, 2};
    amr::PollLoop loop{manager.engine()};
    int running = 0;
    int registered = 0;
    bool failed = false;
};

detached use_buffers(Program &program, int number) {
    program.running++;
    try {
        for (int round = 0; round < rounds; round++) {
            std::vector<char> buffer(buffer_size);
            amr::MemoryRegion region = co_await program.manager.register_async(
                buffer, amr::access::local_write | amr::access::remote_read, program.loop);
            program.registered++;
            if (round == 0)
                std::cout << "coroutine " << number << ": " << region.length() << " bytes, lkey "
                          << region.lkey() << "\n";
            // The region ends before its memory does.
        }
    } catch (const std::exception &error) {
        std::cerr << "coroutine " << number << ": " << error.what() << "\n";
        program.failed = true;
    }
    program.running--;
}

} // namespace

int main(int argc, char **argv) {
    try {
        amr::RDMAContext context = argc > 1 ? amr::RDMAContext(argv[1]) : amr::RDMAContext();
        Program program{context};
        for (int number = 0; number < 4; number++)
            use_buffers(program, number);
        while (program.running > 0)
            program.loop.wait(); // or poll(), when an event loop finds loop.fd() readable
        std::cout << program.registered << " registrations\n";
        return program.failed ? 1 : 0;
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
