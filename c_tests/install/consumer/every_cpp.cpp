// SPDX-License-Identifier: MIT OR Apache-2.0
// Uses all of amr.hpp, so that every template is made. It is compiled, not run.
#include <amr/amr.hpp>

#include <array>
#include <string>
#include <vector>

namespace {

const amr::access rights = amr::access::local_write | amr::access::remote_write;

void on_failure(const char *, int) {}

void use_context() {
    amr::RDMAContext first, named("mlx5_0"), borrowed = amr::RDMAContext::borrow(first.pd());
    named = std::move(borrowed);
    (void)named.context();
    (void)amr::RDMAContext::devices();
    amr::set_failure_handler(on_failure);
    (void)amr::destructor_failures();
}

void use_region(amr::MemoryRegion region, const amr::Engine &engine) {
    amr::MemoryRegion moved(std::move(region));
    region = std::move(moved);
    (void)(region.lkey() + region.rkey() + region.length());
    (void)region.addr();
    (void)(region ? region.sge().length : region.sge(0, 1).length);
    region.deregister_async(engine).get();
    region.deregister_async().get();
    region.deregister();
    (void)region.release();
}

void use_manager(amr::AsyncMRManager &manager, std::vector<char> &memory) {
    std::array<int, 4> array{};
    double plain[4] = {};
    const std::string constant(10, 'x');
    amr::shared_region region = manager.register_memory(memory, rights).get();
    region = manager.register_memory(array, rights).get();
    region = manager.register_memory(plain, rights).get();
    region = manager.register_memory(constant, amr::access::remote_read).get();
    region = manager.register_memory(memory.data(), 10, rights).get();
    (void)manager.register_memory(memory, rights,
                                  [](amr::shared_region made) { return made->lkey(); });
    manager.register_memory(memory.data(), 10, rights, [](const amr::shared_region &) {}).get();
    std::vector<std::vector<char>> many(2, memory);
    (void)manager.register_batch(many, rights);
    (void)manager.register_batch({amr::buffer(memory), amr::buffer(plain)}, rights);
#if __cplusplus >= 202002L
    region = manager.register_memory(std::span<char>(memory), rights).get();
#endif
    use_region(std::move(*region), manager.engine());
}

void use_queue(const amr::RDMAContext &context, const amr::Engine &engine,
               std::vector<char> &memory) {
    amr::CompletionQueue queue(context, engine, 4);
    amr::Completion completion;
    queue.register_memory(memory, rights, 1);
    queue.register_memory(memory.data(), 10, rights, 2);
    queue.cancel(2);
    if (queue.poll(completion) || queue.wait(completion, std::chrono::milliseconds(5)))
        completion.check();
    queue.deregister(std::move(completion.region()), completion.id());
    (void)queue.post(nullptr, 0);
    (void)(queue.fd() + completion.code().value() + completion.wc().status);
    (void)engine.drain();
    (void)engine.stats().completed;
}

#if defined(AMR_HAS_COROUTINES)

struct task {
    struct promise_type {
        task get_return_object() {
            return {};
        }
        std::suspend_never initial_suspend() noexcept {
            return {};
        }
        std::suspend_never final_suspend() noexcept {
            return {};
        }
        void return_void() {}
        void unhandled_exception() {}
    };
};

task use_coroutines(amr::AsyncMRManager &manager, std::vector<char> &memory) {
    amr::PollLoop loop(manager.engine());
    amr::MemoryRegion one = co_await manager.register_async(memory, rights);
    amr::MemoryRegion two = co_await manager.register_async(memory.data(), 10, rights, loop);
    (void)(loop.poll() + loop.wait(std::chrono::milliseconds(5)));
}

#endif

} // namespace

int main() {
    try {
        amr::RDMAContext context;
        amr::AsyncMRManager manager(context, 2);
        std::vector<char> memory(4096);
        use_context();
        use_manager(manager, memory);
        use_queue(context, amr::Engine(1), memory);
#if defined(AMR_HAS_COROUTINES)
        use_coroutines(manager, memory);
#endif
    } catch (const amr::error &error) {
        return error.code() == std::errc::no_such_device ? 77 : static_cast<int>(error.diagnosis());
    }
    return 0;
}
