// SPDX-License-Identifier: MIT OR Apache-2.0
// co_await for registrations (C++20): amr::PollLoop, and what AsyncMRManager::register_async gives.
#ifndef AMR_DETAIL_COROUTINE_HPP
#define AMR_DETAIL_COROUTINE_HPP

#include "config.hpp"

#if defined(AMR_HAS_COROUTINES)

#include "buffer.hpp"
#include "context.hpp"
#include "engine.hpp"
#include "error.hpp"
#include "options.hpp"
#include "queue.hpp"
#include "region.hpp"
#include "request.hpp"
#include <atomic>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace amr {

// Where coroutines go on that were told so: in poll() or wait(), on the thread that calls them.
//
//     while (there_is_work)
//         loop.wait();          // or poll() whenever loop.fd() is readable
//
// Neither copied nor moved, since coroutines refer to it. The destructor waits for what is under
// way and lets these coroutines go on, on its own thread. An exception that leaves a coroutine by
// its promise's unhandled_exception() ends the program.
class PollLoop {
  public:
    // `engine`: of the manager. `capacity`: registrations that can be under way.
    explicit PollLoop(const Engine &engine, std::uint32_t capacity = 1024)
        : core_(detail::cq_core::create(engine.core(), capacity, resume)) {}

    PollLoop(const PollLoop &) = delete;
    PollLoop &operator=(const PollLoop &) = delete;

    ~PollLoop() {
        amr_wc wc;
        while (core_->awaited.load(std::memory_order_relaxed) > 0 &&
               amr_wait_cq(core_->cq, 1, &wc, -1) == 1)
            resume(wc, *core_);
    }

    // Readable while a coroutine can go on: see CompletionQueue::fd().
    int fd() const {
        const int fd = amr_cq_fd(core_->cq);
        if (fd < 0)
            detail::check(-fd, "amr_cq_fd");
        return fd;
    }

    // Lets those coroutines go on whose registrations are over, 64 at most; returns how many.
    std::size_t poll() {
        return wait(std::chrono::milliseconds(0));
    }

    // The same, but waits until one can go on. 0: the time is over.
    std::size_t wait(std::chrono::milliseconds timeout = forever()) {
        // One of the coroutines may end the loop: it has nothing more to wait for of these.
        const auto core = core_;
        amr_wc wc[64];
        const std::size_t count = core->read(wc, 64, timeout);
        core->awaited.fetch_sub(count, std::memory_order_relaxed);
        for (std::size_t i = 0; i < count; i++)
            detail::complete_request(wc[i]);
        return count;
    }

  private:
    friend class RegisterAwaitable;

    static void resume(const amr_wc &wc, detail::cq_core &core) {
        core.awaited.fetch_sub(1, std::memory_order_relaxed);
        detail::complete_request(wc);
    }

    std::shared_ptr<detail::cq_core> core_;
};

namespace detail {

// Outlives a coroutine that is destroyed while it waits: the region is deregistered then.
class await_request final : public request {
  public:
    explicit await_request(std::shared_ptr<context_core> context) : place_(std::move(context)) {}

    // The caller shares `self`, since the coroutine may have ended before this returns.
    static void post(const std::shared_ptr<await_request> &self, std::coroutine_handle<> waiting,
                     amr_engine *engine, cq_core *queue, const buffer &memory, const options &how) {
        self->waiting_ = waiting;
        self->self_ = self;
        const amr_wr wr =
            registration(wr_id(*self), self->place_.pd(), memory.addr(), memory.length(), how);
        const int status = queue != nullptr
                               ? post_awaited(*queue, wr)
                               : amr_post_callback(engine, &wr, 1, on_complete, nullptr);
        if (status != 0) {
            self->self_.reset();
            check(status, "register_async", fault_of(wr, status));
        }
    }

    void complete(const amr_wc &wc) noexcept override {
        const std::shared_ptr<await_request> self = std::move(self_);
        wc_ = wc;
        place_.fill(wc.mr);
        if (is_waiting_.exchange(false, std::memory_order_acq_rel))
            waiting_.resume();
    }

    void abandon() noexcept {
        is_waiting_.store(false, std::memory_order_release);
    }

    MemoryRegion result() {
        if (wc_.status != 0)
            throw error(wc_);
        return std::move(place_);
    }

  private:
    static int post_awaited(cq_core &queue, const amr_wr &wr) noexcept {
        queue.awaited.fetch_add(1, std::memory_order_relaxed);
        const int status = amr_post(queue.cq, &wr, 1, nullptr);
        if (status != 0)
            queue.awaited.fetch_sub(1, std::memory_order_relaxed);
        return status;
    }

    region_place place_;
    amr_wc wc_ = {};
    std::coroutine_handle<> waiting_;
    std::shared_ptr<await_request> self_;
    std::atomic<bool> is_waiting_{true};
};

} // namespace detail

// What register_async() gives: to be awaited once, at once. The coroutine may be destroyed while it
// waits, if nothing lets it go on at the same time.
class RegisterAwaitable {
  public:
    RegisterAwaitable(std::shared_ptr<detail::context_core> context,
                      std::shared_ptr<detail::engine_core> engine, PollLoop *loop,
                      const buffer &memory, const options &how)
        : context_(std::move(context)), engine_(std::move(engine)), loop_(loop), memory_(memory),
          how_(how) {}

    RegisterAwaitable(RegisterAwaitable &&) noexcept = default;
    RegisterAwaitable &operator=(RegisterAwaitable &&) = delete;
    RegisterAwaitable(const RegisterAwaitable &) = delete;
    RegisterAwaitable &operator=(const RegisterAwaitable &) = delete;

    ~RegisterAwaitable() {
        if (request_)
            request_->abandon();
    }

    bool await_ready() const noexcept {
        return false;
    }

    // Throws amr::error into the coroutine if the request is refused, or was awaited already.
    void await_suspend(std::coroutine_handle<> waiting) {
        if (!context_)
            throw error(EINVAL, "this registration was awaited already");
        memory_.check(how_.rights);
        const auto request = std::make_shared<detail::await_request>(std::move(context_));
        const auto engine = std::move(engine_);
        request_ = request;
        detail::await_request::post(request, waiting, engine->engine,
                                    loop_ != nullptr ? loop_->core_.get() : nullptr, memory_, how_);
        // The coroutine may be elsewhere now, or gone, and this object with it.
    }

    MemoryRegion await_resume() {
        return request_->result();
    }

  private:
    std::shared_ptr<detail::context_core> context_;
    std::shared_ptr<detail::engine_core> engine_;
    PollLoop *loop_;
    buffer memory_;
    options how_;
    std::shared_ptr<detail::await_request> request_;
};

} // namespace amr

#endif // AMR_HAS_COROUTINES

#endif // AMR_DETAIL_COROUTINE_HPP
