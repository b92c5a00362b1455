// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::CompletionQueue: completions to be polled, with a descriptor for event loops.
#ifndef AMR_DETAIL_QUEUE_HPP
#define AMR_DETAIL_QUEUE_HPP

#include "buffer.hpp"
#include "config.hpp"
#include "context.hpp"
#include "engine.hpp"
#include "error.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "region.hpp"
#include "request.hpp"
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace amr {

namespace detail {

// A completion queue that ends, with all that is under way on it, whenever its owner does.
class cq_core {
  public:
    // What becomes of a completion that nobody will poll for.
    using disposal = void (*)(const amr_wc &wc, cq_core &core);

    static std::shared_ptr<cq_core> create(std::shared_ptr<engine_core> engine,
                                           std::uint32_t capacity, disposal dispose) {
        std::unique_ptr<cq_core> core(new cq_core(std::move(engine), dispose));
        core->cq = amr_create_cq(core->engine_->engine, capacity);
        if (core->cq == nullptr) {
            const int status = reason();
            check(status, "amr_create_cq",
                  out_of_range("capacity", capacity, 1, AMR_MAX_CQ_CAPACITY));
        }
        return std::shared_ptr<cq_core>(core.release(), end);
    }

    // Returns how many were taken. Throws if the first one was not.
    std::size_t post(const amr_wr *wr, std::size_t count) {
        std::size_t posted = 0;
        const int status = amr_post(cq, wr, count, &posted);
        if (posted == 0)
            check(status, "amr_post", count > 0 ? fault_of(wr[0], status) : std::string());
        return posted;
    }

    // Reads at most `count` completions; waits for the first one if `timeout` allows it.
    std::size_t read(amr_wc *wc, int count, std::chrono::milliseconds timeout) {
        const int read = timeout.count() == 0 ? amr_poll_cq(cq, count, wc)
                                              : amr_wait_cq(cq, count, wc, milliseconds(timeout));
        if (read < 0)
            check(-read, "amr_wait_cq");
        return static_cast<std::size_t>(read);
    }

    amr_cq *cq = nullptr;
    std::shared_ptr<context_core> context; // of its regions, where they are all of one
    // Completions that somebody waits for: the queue is not destroyed with one of them unread.
    std::atomic<std::size_t> awaited{0};

  private:
    cq_core(std::shared_ptr<engine_core> engine, disposal dispose) noexcept
        : engine_(std::move(engine)), dispose_(dispose) {}

    // The deleter. In a callback of the engine, another thread has to do the waiting.
    static void end(cq_core *core) noexcept {
        int status = 0;
        while ((status = core->try_to_end()) == EBUSY) {
        }
        if (status == EDEADLK) {
            run_elsewhere([core] { end(core); }, "amr_destroy_cq");
            return;
        }
        // A forked child has nothing to destroy, and an exiting process nothing to wait for.
        if (status != 0 && status != EPERM && status != ESHUTDOWN)
            report_failure("amr_destroy_cq", status);
        delete core;
    }

    // Destroys the queue if nothing is left on it; else disposes of one completion, and EBUSY.
    int try_to_end() noexcept {
        amr_wc wc;
        int read = amr_poll_cq(cq, 1, &wc);
        if (read == 0 && awaited.load(std::memory_order_relaxed) == 0) {
            const int status = amr_destroy_cq(cq);
            if (status != EBUSY)
                return status;
        }
        if (read == 0)
            read = amr_wait_cq(cq, 1, &wc, -1);
        if (read < 0)
            return -read;
        dispose_(wc, *this);
        return EBUSY;
    }

    std::shared_ptr<engine_core> engine_;
    disposal dispose_;
};

} // namespace detail

// What became of one request of a CompletionQueue. Owns the region that came with it: what is not
// taken out is deregistered.
class Completion {
  public:
    Completion() = default;

    // As given to the request.
    std::uint64_t id() const noexcept {
        return wc_.wr_id;
    }

    // No error if the request succeeded.
    std::error_code code() const noexcept {
        return std::error_code(wc_.status, category());
    }

    // Throws amr::error if the request failed.
    void check() const {
        if (wc_.status != 0)
            throw error(wc_);
    }

    // The region that was registered, or could not be deregistered; else an empty one.
    MemoryRegion &region() noexcept {
        return region_;
    }

    // All of it, with the diagnosis and the times.
    const amr_wc &wc() const noexcept {
        return wc_;
    }

  private:
    friend class CompletionQueue;

    Completion(const amr_wc &wc, const std::shared_ptr<detail::context_core> &context) noexcept
        : wc_(wc) {
        if (wc.mr == nullptr)
            return;
        detail::region_place place(context);
        place.fill(wc.mr);
        region_ = std::move(place);
    }

    amr_wc wc_ = {};
    MemoryRegion region_;
};

// Completions of requests on one context, to be polled by whoever wants to. Can be moved, not
// copied. Shares the ownership of the context and of the engine.
//
// Several threads may post and poll. The destructor waits for what is under way, since the memory
// may be gone after it, and deregisters what nobody has polled for.
class CompletionQueue {
  public:
    // `capacity`: requests that can be under way or unread, 1 to AMR_MAX_CQ_CAPACITY.
    CompletionQueue(const RDMAContext &context, const Engine &engine, std::uint32_t capacity)
        : core_(detail::cq_core::create(engine.core(), capacity, dispose)) {
        core_->context = context.core();
    }

    // On the default engine.
    CompletionQueue(const RDMAContext &context, std::uint32_t capacity)
        : CompletionQueue(context, Engine::default_engine(), capacity) {}

    CompletionQueue(CompletionQueue &&) noexcept = default;
    CompletionQueue &operator=(CompletionQueue &&) noexcept = default;
    CompletionQueue(const CompletionQueue &) = delete;
    CompletionQueue &operator=(const CompletionQueue &) = delete;
    ~CompletionQueue() = default;

    // Readable while there is a completion to poll for: for poll(), epoll, Asio, libuv and so on.
    // Only to be waited on; it is closed with the queue.
    int fd() const {
        const int fd = amr_cq_fd(native());
        if (fd < 0)
            detail::check(-fd, "amr_cq_fd");
        return fd;
    }

    // Posts a registration; its completion has that id. Throws amr::error if it is refused:
    // EAGAIN if there is no room, in the queue or in the engine.
    void register_memory(void *addr, std::size_t length, const options &how, std::uint64_t id) {
        const amr_wr wr = detail::registration(id, core().context->pd, addr, length, how);
        core().post(&wr, 1);
    }

    void register_memory(const buffer &memory, const options &how, std::uint64_t id) {
        memory.check(how.rights);
        register_memory(memory.addr(), memory.length(), how, id);
    }

    // Posts a deregistration, which takes the region; the completion has it again if that fails.
    // If it is refused, the region is as it was.
    void deregister(MemoryRegion &&region, std::uint64_t id) {
        const amr_wr wr = detail::deregistration(id, region.raw());
        core().post(&wr, 1);
        (void)region.release();
    }

    // Posts work requests on the PD of its context, all in one call. Returns how many were taken:
    // less than `count` if the next one was refused. Throws amr::error if the first one was.
    AMR_NODISCARD std::size_t post(const amr_wr *wr, std::size_t count) {
        return core().post(wr, count);
    }

    // Cancels the oldest queued request with that id: its completion says
    // std::errc::operation_canceled. Throws EALREADY if it is running, ENOENT if there is none.
    void cancel(std::uint64_t id) {
        detail::check(amr_cancel(native(), id), "amr_cancel");
    }

    // Reads one completion, oldest first. Returns false if there is none.
    AMR_NODISCARD bool poll(Completion &completion) {
        return wait(completion, std::chrono::milliseconds(0));
    }

    // The same, but waits for one.
    AMR_NODISCARD bool wait(Completion &completion, std::chrono::milliseconds timeout = forever()) {
        amr_wc wc;
        if (core().read(&wc, 1, timeout) == 0)
            return false;
        completion = Completion(wc, core().context);
        return true;
    }

    // For calls of the C API. What is posted by these is waited for as well.
    amr_cq *native() const {
        return core().cq;
    }

  private:
    static void dispose(const amr_wc &wc, detail::cq_core &core) {
        const Completion unread(wc, core.context);
    }

    detail::cq_core &core() const {
        if (!core_)
            throw error(EINVAL, "this CompletionQueue was moved from");
        return *core_;
    }

    std::shared_ptr<detail::cq_core> core_;
};

} // namespace amr

#endif // AMR_DETAIL_QUEUE_HPP
