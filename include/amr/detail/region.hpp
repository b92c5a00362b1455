// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::MemoryRegion: a registered memory region and its end.
#ifndef AMR_DETAIL_REGION_HPP
#define AMR_DETAIL_REGION_HPP

#include "config.hpp"
#include "context.hpp"
#include "engine.hpp"
#include "error.hpp"
#include "failure.hpp"
#include "request.hpp"
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <infiniband/verbs.h>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

namespace amr {

namespace detail {

inline void deregister_or_report(ibv_mr *mr) noexcept {
    const int status = ibv_dereg_mr(mr);
    if (status != 0)
        report_failure("ibv_dereg_mr", status);
}

// An asynchronous deregistration. A region that it could not deregister is in it, until its
// MemoryRegion takes it back; if that is gone, this is the last that knows of it.
class dereg_request final : public request {
  public:
    explicit dereg_request(std::shared_ptr<context_core> context) : context_(std::move(context)) {}

    ~dereg_request() {
        if (ibv_mr *mr = take_back())
            deregister_or_report(mr);
    }

    // Throws, and nothing has happened, if the request is refused.
    static std::future<void> post(const std::shared_ptr<dereg_request> &self, ibv_mr *mr,
                                  amr_engine *engine) {
        std::future<void> future = self->promise_.get_future();
        self->self_ = self;
        const amr_wr wr = deregistration(wr_id(*self), mr);
        const int status = amr_post_callback(engine, &wr, 1, on_complete, nullptr);
        if (status != 0) {
            self->self_.reset();
            check(status, "amr_post_callback");
        }
        return future;
    }

    void complete(const amr_wc &wc) noexcept override {
        const std::shared_ptr<dereg_request> self = std::move(self_);
        std::promise<void> promise = std::move(promise_);
        if (wc.status == 0) {
            context_.reset(); // before anybody hears of it: maybe the device can be closed now
            promise.set_value();
        } else {
            returned_.store(wc.mr, std::memory_order_release);
            promise.set_exception(failure(wc));
        }
    }

    ibv_mr *returned() const noexcept {
        return returned_.load(std::memory_order_acquire);
    }

    ibv_mr *take_back() noexcept {
        return returned_.exchange(nullptr, std::memory_order_acq_rel);
    }

    // Of the region that was taken back.
    std::shared_ptr<context_core> take_context() noexcept {
        return std::move(context_);
    }

  private:
    std::shared_ptr<context_core> context_;
    std::shared_ptr<dereg_request> self_;
    std::promise<void> promise_;
    std::atomic<ibv_mr *> returned_{nullptr};
};

class region_place;

} // namespace detail

// A registered memory region, which it deregisters at its end. Can be moved, not copied; its PD and
// device stay open as long as it lives. The memory is the application's, and must outlive it.
//
// A region can be empty: by default, moved from, released, deregistered, and while an asynchronous
// deregistration is under way. As with any object, one thread at a time may change it.
class MemoryRegion {
  public:
    MemoryRegion() noexcept = default;

    // Takes over a region that was registered on the PD of `context`.
    MemoryRegion(ibv_mr *mr, const RDMAContext &context) : mr_(mr), context_(context.core()) {}

    MemoryRegion(MemoryRegion &&other) noexcept
        : mr_(other.mr_), context_(std::move(other.context_)), ending_(std::move(other.ending_)) {
        other.mr_ = nullptr;
    }

    MemoryRegion &operator=(MemoryRegion &&other) noexcept {
        MemoryRegion taken(std::move(other));
        std::swap(mr_, taken.mr_);
        std::swap(context_, taken.context_);
        std::swap(ending_, taken.ending_);
        return *this;
    }

    MemoryRegion(const MemoryRegion &) = delete;
    MemoryRegion &operator=(const MemoryRegion &) = delete;

    // Deregisters, in the calling thread. Throws nothing: a failure is counted, see
    // destructor_failures().
    ~MemoryRegion() {
        if (mr_ != nullptr)
            detail::deregister_or_report(mr_);
    }

    // nullptr if it is empty; lkey() and the others are then 0.
    ibv_mr *raw() const noexcept {
        return mr_ != nullptr || !ending_ ? mr_ : ending_->returned();
    }

    explicit operator bool() const noexcept {
        return raw() != nullptr;
    }

    std::uint32_t lkey() const noexcept {
        const ibv_mr *mr = raw();
        return mr != nullptr ? mr->lkey : 0;
    }

    std::uint32_t rkey() const noexcept {
        const ibv_mr *mr = raw();
        return mr != nullptr ? mr->rkey : 0;
    }

    void *addr() const noexcept {
        const ibv_mr *mr = raw();
        return mr != nullptr ? mr->addr : nullptr;
    }

    // Bytes.
    std::size_t length() const noexcept {
        const ibv_mr *mr = raw();
        return mr != nullptr ? mr->length : 0;
    }

    // A scatter/gather element for `length` bytes from `offset` on. Throws std::out_of_range if
    // they are not in the region, or more than an element can name (4 GiB - 1).
    AMR_NODISCARD ibv_sge sge(std::size_t offset, std::size_t length) const {
        const std::size_t size = this->length();
        if (offset > size || length > size - offset)
            throw std::out_of_range("amr::MemoryRegion::sge: not in the region");
        if (length > std::numeric_limits<std::uint32_t>::max())
            throw std::out_of_range("amr::MemoryRegion::sge: an element has at most 4 GiB - 1");
        ibv_sge sge = {};
        sge.addr = reinterpret_cast<std::uintptr_t>(addr()) + offset;
        sge.length = static_cast<std::uint32_t>(length);
        sge.lkey = lkey();
        return sge;
    }

    // For the whole region.
    AMR_NODISCARD ibv_sge sge() const {
        return sge(0, length());
    }

    // Gives the region away: it is the caller's to deregister, before its PD is closed.
    AMR_NODISCARD ibv_mr *release() noexcept {
        settle();
        ibv_mr *mr = mr_;
        mr_ = nullptr;
        context_.reset();
        return mr;
    }

    // Deregisters, in the calling thread. Throws amr::error if that fails: the region is then as it
    // was, and it can be tried again. Throws EINVAL if it is empty.
    void deregister() {
        settle();
        check_not_empty();
        const int status = ibv_dereg_mr(mr_);
        if (status != 0) {
            amr_wc wc = {};
            wc.opcode = AMR_OP_DEREG_MR;
            wc.status = status;
            throw error(wc);
        }
        mr_ = nullptr;
        context_.reset();
    }

    // Deregisters on a worker of `engine`. The region is empty from here on. If it fails, the
    // future throws amr::error, and the region is again what it was, and can be tried again; if it
    // was destroyed meanwhile, it is tried once more and counted. It may be moved meanwhile.
    // Throws, and changes nothing: EINVAL if it is empty; EAGAIN if the queue is full.
    AMR_NODISCARD std::future<void> deregister_async(const Engine &engine) {
        settle();
        check_not_empty();
        auto ending = std::make_shared<detail::dereg_request>(context_);
        ibv_mr *mr = mr_;
        std::future<void> future = detail::dereg_request::post(ending, mr, engine.native());
        mr_ = nullptr;
        context_.reset();
        ending_ = std::move(ending);
        return future;
    }

    // The same on the default engine.
    AMR_NODISCARD std::future<void> deregister_async() {
        return deregister_async(Engine::default_engine());
    }

  private:
    friend class detail::region_place;

    // Takes back what a failed asynchronous deregistration has returned.
    void settle() noexcept {
        if (!ending_ || (mr_ = ending_->take_back()) == nullptr)
            return;
        context_ = ending_->take_context();
        ending_.reset();
    }

    void check_not_empty() const {
        if (mr_ == nullptr)
            throw error(EINVAL, "this MemoryRegion is empty");
    }

    ibv_mr *mr_ = nullptr;
    std::shared_ptr<detail::context_core> context_;
    std::shared_ptr<detail::dereg_request> ending_;
};

namespace detail {

// Where the region of a registration comes to be. It is made before the request is posted, so that
// nothing can fail once there is a region.
class region_place : public MemoryRegion {
  public:
    explicit region_place(std::shared_ptr<context_core> context) noexcept {
        context_ = std::move(context);
    }

    ibv_pd *pd() const noexcept {
        return context_->pd;
    }

    // `mr` is NULL after a failure.
    void fill(ibv_mr *mr) noexcept {
        mr_ = mr;
    }
};

} // namespace detail

} // namespace amr

#endif // AMR_DETAIL_REGION_HPP
