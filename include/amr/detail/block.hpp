// SPDX-License-Identifier: MIT OR Apache-2.0
// One block of memory for all that a request needs, used again and again: the shared state and the
// result of its promise, the request, and the region that comes of it. So a burst asks the heap for
// nothing that it has not asked for before.
#ifndef AMR_DETAIL_BLOCK_HPP
#define AMR_DETAIL_BLOCK_HPP

#include "config.hpp"
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace amr {
namespace detail {

class block_pool;

// Pieces are cut off by the thread that makes the request, until it closes the block. They are
// given back by any thread after that; or before, by the same, if the request cannot be made.
class block {
  public:
    explicit block(block_pool *pool) noexcept : pool_(pool) {}
    block(const block &) = delete;
    block &operator=(const block &) = delete;

    // It will be written to soon, and has left the caches since it was used.
    void prefetch() const noexcept {
        const auto *line = reinterpret_cast<const unsigned char *>(this);
        for (std::size_t i = 0; i < sizeof(*this); i += 64)
            __builtin_prefetch(line + i, 1);
    }

    // What has no room in the block comes from the heap.
    void *allocate(std::size_t size) {
        const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
        void *piece = space_ + used_;
        if (rounded <= sizeof(space_) - used_)
            used_ += rounded;
        else
            piece = ::operator new(size);
        pieces_++;
        return piece;
    }

    void deallocate(void *piece) noexcept {
        if (piece < space_ || piece >= space_ + sizeof(space_))
            ::operator delete(piece);
        if (!is_closed_)
            pieces_--;
        else if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            end();
    }

    void close() noexcept {
        is_closed_ = true;
        users_.store(pieces_, std::memory_order_relaxed);
        if (pieces_ == 0)
            end();
    }

  private:
    friend class block_pool;

    static constexpr std::size_t alignment = alignof(std::max_align_t);

    // Nothing of it is in use any more.
    inline void end() noexcept;

    block_pool *const pool_; // nullptr: not to be used again
    block *next_ = nullptr;
    std::size_t used_ = 0;
    unsigned pieces_ = 0;
    bool is_closed_ = false;
    std::atomic<unsigned> users_{0}; // pieces that are not given back
    alignas(alignment) unsigned char space_[256];
};

// The blocks that are free. Lives until its owner and all its blocks are gone.
class block_pool {
  public:
    // At most `limit` blocks are kept; more are made if need be.
    explicit block_pool(std::size_t limit) noexcept : limit_(AMR_REUSES_MEMORY ? limit : 0) {}
    block_pool(const block_pool &) = delete;
    block_pool &operator=(const block_pool &) = delete;

    // Waits for nobody: where two threads meet, one makes a new block.
    block *take() {
        block *taken = nullptr;
        if (!is_taking_.exchange(true, std::memory_order_acquire)) {
            if (free_ == nullptr)
                free_ = returned_.top.exchange(nullptr, std::memory_order_acquire);
            taken = free_;
            if (taken != nullptr)
                free_ = taken->next_;
            if (free_ != nullptr)
                free_->prefetch();
            is_taking_.store(false, std::memory_order_release);
        }
        return taken != nullptr ? taken : make();
    }

    void give(block *given) noexcept {
        given->used_ = 0;
        given->pieces_ = 0;
        given->is_closed_ = false;
        block *top = returned_.top.load(std::memory_order_relaxed);
        do {
            if (top == closed()) {
                drop(given);
                return;
            }
            given->next_ = top;
        } while (!returned_.top.compare_exchange_weak(top, given, std::memory_order_release,
                                                      std::memory_order_relaxed));
    }

    // The owner's end.
    void close() noexcept {
        drop_all(free_);
        drop_all(returned_.top.exchange(closed(), std::memory_order_acquire));
        release();
    }

  private:
    ~block_pool() = default;

    // Stands for a block that cannot be.
    block *closed() noexcept {
        return reinterpret_cast<block *>(this);
    }

    block *make() {
        const bool is_kept = owners_.load(std::memory_order_relaxed) <= limit_;
        block *made = new block(is_kept ? this : nullptr);
        if (is_kept)
            owners_.fetch_add(1, std::memory_order_relaxed);
        return made;
    }

    void drop_all(block *top) noexcept {
        while (top != nullptr) {
            block *next = top->next_;
            drop(top);
            top = next;
        }
    }

    void drop(block *dropped) noexcept {
        delete dropped;
        release();
    }

    void release() noexcept {
        if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    const std::size_t limit_;
    std::atomic<std::size_t> owners_{1}; // its owner and its blocks
    std::atomic<bool> is_taking_{false};
    block *free_ = nullptr; // of the thread that is taking
    // Those who give need not disturb those who take.
    struct {
        unsigned char apart[64];
        std::atomic<block *> top;
    } returned_ = {{}, {nullptr}};
};

inline void block::end() noexcept {
    if (pool_ != nullptr)
        pool_->give(this);
    else
        delete this;
}

template <typename T> class block_allocator {
  public:
    using value_type = T;

    explicit block_allocator(block *from) noexcept : block_(from) {}

    template <typename Other>
    block_allocator(const block_allocator<Other> &other) noexcept : block_(other.from()) {}

    T *allocate(std::size_t count) {
        static_assert(alignof(T) <= alignof(std::max_align_t),
                      "callables and their results must not be over-aligned");
        return static_cast<T *>(block_->allocate(count * sizeof(T)));
    }

    void deallocate(T *piece, std::size_t) noexcept {
        block_->deallocate(piece);
    }

    block *from() const noexcept {
        return block_;
    }

  private:
    block *block_;
};

template <typename A, typename B>
bool operator==(const block_allocator<A> &a, const block_allocator<B> &b) noexcept {
    return a.from() == b.from();
}

template <typename A, typename B>
bool operator!=(const block_allocator<A> &a, const block_allocator<B> &b) noexcept {
    return a.from() != b.from();
}

struct pool_closer {
    void operator()(block_pool *pool) const noexcept {
        pool->close();
    }
};

using pool_owner = std::unique_ptr<block_pool, pool_closer>;

// The object is given the allocator for what else it needs.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_in_block(block_pool &pool, Arguments &&...arguments) {
    struct maker {
        block *taken;
        ~maker() {
            taken->close();
        }
    } const maker{pool.take()};
    const block_allocator<T> allocator(maker.taken);
    return std::allocate_shared<T>(allocator, allocator, std::forward<Arguments>(arguments)...);
}

} // namespace detail
} // namespace amr

#endif // AMR_DETAIL_BLOCK_HPP
