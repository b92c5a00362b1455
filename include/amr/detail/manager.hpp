// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::AsyncMRManager: registrations that bring futures.
#ifndef AMR_DETAIL_MANAGER_HPP
#define AMR_DETAIL_MANAGER_HPP

#include "block.hpp"
#include "buffer.hpp"
#include "config.hpp"
#include "context.hpp"
#include "coroutine.hpp"
#include "engine.hpp"
#include "error.hpp"
#include "options.hpp"
#include "region.hpp"
#include "request.hpp"
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace amr {

// A region that several may hold; deregistered by the last of them.
using shared_region = std::shared_ptr<MemoryRegion>;

namespace detail {

// A registration with a promise, all in one block; it becomes the region that the user gets.
template <typename Result> class future_request : public request, public region_place {
  public:
    // `self` then keeps itself alive until it is complete or refused.
    template <typename Request> static Request &hold(std::shared_ptr<Request> self) noexcept {
        Request &held = *self;
        held.held_ = std::move(self);
        return held;
    }

    std::future<Result> future() {
        return promise_.get_future();
    }

    // Nobody will complete it; the caller goes on holding it.
    void refuse() noexcept {
        const shared_region last = std::move(held_);
    }

    // The future of a request that was refused in a batch.
    void refuse(const std::exception_ptr &reason) noexcept {
        const shared_region last = std::move(held_);
        promise_.set_exception(reason);
    }

  protected:
    template <typename Allocator>
    future_request(const Allocator &allocator, std::shared_ptr<context_core> context)
        : region_place(std::move(context)), promise_(std::allocator_arg, allocator) {}

    ~future_request() = default;

    shared_region held_;
    std::promise<Result> promise_;
};

// The future brings the region.
class region_request final : public future_request<shared_region> {
  public:
    template <typename Allocator>
    region_request(const Allocator &allocator, std::shared_ptr<context_core> context)
        : future_request<shared_region>(allocator, std::move(context)) {}

    void complete(const amr_wc &wc) noexcept override {
        shared_region region = std::move(held_);
        std::promise<shared_region> promise = std::move(promise_);
        fill(wc.mr);
        if (wc.status == 0)
            promise.set_value(std::move(region));
        else
            promise.set_exception(failure(wc));
    }
};

template <typename Call>
using result_of_call = decltype(std::declval<typename std::decay<Call>::type &>()(
    std::declval<const shared_region &>()));

// What a callable returned, until its promise is told.
template <typename Result> struct call_result {
    template <typename Call>
    call_result(Call &call, const shared_region &region) : value(call(region)) {}

    void fulfil(std::promise<Result> &promise) {
        promise.set_value(std::forward<Result>(value));
    }

    Result value;
};

template <> struct call_result<void> {
    template <typename Call> call_result(Call &call, const shared_region &region) {
        call(region);
    }

    void fulfil(std::promise<void> &promise) {
        promise.set_value();
    }
};

// The future brings what a callable makes of the region.
template <typename Result, typename Call> class call_request final : public future_request<Result> {
  public:
    template <typename Allocator, typename Argument>
    call_request(const Allocator &allocator, std::shared_ptr<context_core> context, Argument &&call)
        : future_request<Result>(allocator, std::move(context)),
          call_(std::forward<Argument>(call)) {}

    ~call_request() {
        if (!is_complete_)
            call_.~Call();
    }

    void complete(const amr_wc &wc) noexcept override {
        shared_region region = std::move(this->held_);
        std::promise<Result> promise = std::move(this->promise_);
        this->fill(wc.mr);
        std::exception_ptr thrown;
        if (wc.status != 0) {
            thrown = failure(wc);
        } else {
            try {
                call_result<Result> result(call_, region);
                let_go(region);
                result.fulfil(promise);
                return;
            } catch (...) {
                thrown = std::current_exception();
            }
        }
        if (region)
            let_go(region);
        promise.set_exception(thrown);
    }

  private:
    // Before anybody hears of the end: of what the callable holds, of the region, and of itself.
    void let_go(shared_region &region) noexcept {
        is_complete_ = true;
        call_.~Call();
        region.reset();
    }

    union {
        Call call_;
    };
    bool is_complete_ = false;
};

// Registrations for one post. Those that were not taken are given up at the end.
class batch {
  public:
    explicit batch(std::size_t count) {
        wrs_.reserve(count);
        futures_.reserve(count);
    }

    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;

    ~batch() {
        for (; taken_ < wrs_.size(); taken_++)
            next().refuse();
    }

    void add(block_pool &pool, const std::shared_ptr<context_core> &context, const buffer &memory,
             const options &how) {
        memory.check(how.rights);
        auto &request = region_request::hold(make_in_block<region_request>(pool, context));
        // There is room for both.
        futures_.push_back(request.future());
        wrs_.push_back(
            registration(wr_id(request), request.pd(), memory.addr(), memory.length(), how));
    }

    // The future of what is refused says why; after a wrong request, the others are tried.
    std::vector<std::future<shared_region>> post(amr_engine *engine) {
        while (taken_ < wrs_.size()) {
            std::size_t posted = 0;
            const int status = amr_post_callback(engine, &wrs_[taken_], wrs_.size() - taken_,
                                                 on_complete, &posted);
            taken_ += posted;
            if (status != 0)
                refuse(status);
        }
        return std::move(futures_);
    }

  private:
    region_request &next() {
        return static_cast<region_request &>(request_of(wrs_[taken_].wr_id));
    }

    void refuse(int status) {
        const std::exception_ptr reason = refusal(status, "register_batch", wrs_[taken_]);
        do
            next().refuse(reason);
        while (++taken_ < wrs_.size() && status != EINVAL);
    }

    std::vector<amr_wr> wrs_;
    std::vector<std::future<shared_region>> futures_;
    std::size_t taken_ = 0; // those before it are no longer this batch's
};

} // namespace detail

// Registers memory on a pool of worker threads of its own. Can be moved, not copied.
//
// Every call returns at once, and any thread may make it, a worker in a callable included. Each
// future becomes ready exactly once, with the region or with an amr::error that has the device's
// errno value and says what to do. Memory must stay where it is until then. A future may be dropped
// without get(): its region is then deregistered as soon as it comes.
//
// What is refused has no future, and changes nothing: register_memory() throws amr::error then,
// with std::errc::invalid_argument, or with std::errc::resource_unavailable_try_again if the queue
// is full: wait for one of the earlier futures and try again.
//
// The destructor returns when nothing of the manager is running any more: what is queued completes
// with std::errc::operation_canceled, what runs completes as it does, and no future is left that
// does not become ready. Where a CompletionQueue or PollLoop still shares its engine, what is
// queued is performed instead. In a callable of its own the destructor does not wait.
class AsyncMRManager {
  public:
    // `workers` and `queue_depth`: see Engine.
    explicit AsyncMRManager(const RDMAContext &context, unsigned workers = 0,
                            unsigned queue_depth = 0)
        : context_(context.core()), engine_(workers, queue_depth),
          pool_(new detail::block_pool(engine_.stats().queue_depth)) {}

    AsyncMRManager(AsyncMRManager &&) noexcept = default;

    AsyncMRManager &operator=(AsyncMRManager &&other) noexcept {
        AsyncMRManager taken(std::move(other));
        std::swap(context_, taken.context_);
        std::swap(engine_, taken.engine_);
        std::swap(pool_, taken.pool_);
        return *this;
    }

    AsyncMRManager(const AsyncMRManager &) = delete;
    AsyncMRManager &operator=(const AsyncMRManager &) = delete;

    ~AsyncMRManager() {
        if (engine_.is_shared())
            amr_drain(engine_.native(), nullptr, -1);
    }

    // Registers `length` bytes at `addr`.
    AMR_NODISCARD std::future<shared_region> register_memory(void *addr, std::size_t length,
                                                             const options &how) {
        amr_engine *engine = engine_.native();
        auto &request = detail::region_request::hold(
            detail::make_in_block<detail::region_request>(*pool_, context_));
        std::future<shared_region> future = request.future();
        post(engine, request, addr, length, how);
        return future;
    }

    // Registers an array, or what a container or span holds.
    AMR_NODISCARD std::future<shared_region> register_memory(const buffer &memory,
                                                             const options &how) {
        memory.check(how.rights);
        return register_memory(memory.addr(), memory.length(), how);
    }

    // The same, and then calls `call(shared_region)` on the worker; the future brings what it
    // returns, or what it throws. It is not called if the registration fails: the future brings the
    // error then. A worker has a stack of 256 KiB, and serves nobody else meanwhile.
    template <typename Call, typename Result = detail::result_of_call<Call>>
    AMR_NODISCARD std::future<Result> register_memory(void *addr, std::size_t length,
                                                      const options &how, Call &&call) {
        using request_type = detail::call_request<Result, typename std::decay<Call>::type>;
        amr_engine *engine = engine_.native();
        auto &request = request_type::hold(
            detail::make_in_block<request_type>(*pool_, context_, std::forward<Call>(call)));
        std::future<Result> future = request.future();
        post(engine, request, addr, length, how);
        return future;
    }

    template <typename Call, typename Result = detail::result_of_call<Call>>
    AMR_NODISCARD std::future<Result> register_memory(const buffer &memory, const options &how,
                                                      Call &&call) {
        memory.check(how.rights);
        return register_memory(memory.addr(), memory.length(), how, std::forward<Call>(call));
    }

    // Registers many buffers in one post. `buffers` is a range of amr::buffer or of anything that
    // one can be made of, like a vector of vectors. The futures are in the order of the buffers.
    // The future of a buffer that is refused says why; throws only if there is no memory, or if
    // one is const and to be written: then nothing is posted.
    template <typename Buffers>
    AMR_NODISCARD std::vector<std::future<shared_region>> register_batch(Buffers &&buffers,
                                                                         const options &how) {
        using std::begin;
        using std::end;
        amr_engine *engine = engine_.native();
        const auto last = end(buffers);
        detail::batch batch(static_cast<std::size_t>(std::distance(begin(buffers), last)));
        for (auto memory = begin(buffers); memory != last; ++memory)
            batch.add(*pool_, context_, *memory, how);
        return batch.post(engine);
    }

    AMR_NODISCARD std::vector<std::future<shared_region>>
    register_batch(std::initializer_list<buffer> buffers, const options &how) {
        return register_batch<std::initializer_list<buffer> &>(buffers, how);
    }

#if defined(AMR_HAS_COROUTINES)
    // For co_await, which gives a MemoryRegion or throws amr::error. The request is posted when it
    // is awaited. The coroutine goes on on the worker.
    AMR_NODISCARD RegisterAwaitable register_async(void *addr, std::size_t length,
                                                   const options &how) {
        return RegisterAwaitable(context_, engine_.core(), nullptr, buffer(addr, length), how);
    }

    AMR_NODISCARD RegisterAwaitable register_async(const buffer &memory, const options &how) {
        return RegisterAwaitable(context_, engine_.core(), nullptr, memory, how);
    }

    // The coroutine goes on in loop.poll().
    AMR_NODISCARD RegisterAwaitable register_async(void *addr, std::size_t length,
                                                   const options &how, PollLoop &loop) {
        return RegisterAwaitable(context_, engine_.core(), &loop, buffer(addr, length), how);
    }

    AMR_NODISCARD RegisterAwaitable register_async(const buffer &memory, const options &how,
                                                   PollLoop &loop) {
        return RegisterAwaitable(context_, engine_.core(), &loop, memory, how);
    }
#endif

    // Its pool, for what else is to run on it.
    const Engine &engine() const noexcept {
        return engine_;
    }

  private:
    template <typename Request>
    static void post(amr_engine *engine, Request &request, void *addr, std::size_t length,
                     const options &how) {
        const amr_wr wr =
            detail::registration(detail::wr_id(request), request.pd(), addr, length, how);
        const int status = amr_post_callback(engine, &wr, 1, detail::on_complete, nullptr);
        if (status != 0) {
            request.refuse();
            detail::check(status, "register_memory", detail::fault_of(wr, status));
        }
    }

    std::shared_ptr<detail::context_core> context_;
    Engine engine_;
    detail::pool_owner pool_;
};

} // namespace amr

#endif // AMR_DETAIL_MANAGER_HPP
