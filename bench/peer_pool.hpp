// SPDX-License-Identifier: MIT OR Apache-2.0
// The usual way to register memory in the background, which libamr is compared with.
//
// A pool of std::thread that takes tasks from a std::queue under a mutex and a condition variable,
// and hands each region back as a std::shared_ptr through a std::promise: what programs write that
// need this, and what texts on the subject show. It has no handicap: it prints nothing, notifies
// after it has released the mutex, moves each task instead of copying it, makes a region and its
// reference count with one allocation, and keeps nothing that a caller would not need.
#ifndef AMR_BENCH_PEER_POOL_HPP
#define AMR_BENCH_PEER_POOL_HPP

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <future>
#include <infiniband/verbs.h>
#include <memory>
#include <mutex>
#include <queue>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

// Deregisters its region at the end of its life.
class MemoryRegion {
  public:
    explicit MemoryRegion(ibv_mr *mr) : mr_(mr) {}

    MemoryRegion(const MemoryRegion &) = delete;
    MemoryRegion &operator=(const MemoryRegion &) = delete;

    ~MemoryRegion() {
        ibv_dereg_mr(mr_);
    }

  private:
    ibv_mr *mr_;
};

class PeerPool {
  public:
    using Region = std::shared_ptr<MemoryRegion>;

    PeerPool(ibv_pd *pd, unsigned workers) : pd_(pd) {
        for (unsigned i = 0; i < workers; i++)
            workers_.emplace_back([this] { work(); });
    }

    PeerPool(const PeerPool &) = delete;
    PeerPool &operator=(const PeerPool &) = delete;

    ~PeerPool() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
        }
        not_empty_.notify_all();
        for (std::thread &worker : workers_)
            worker.join();
    }

    std::future<Region> register_memory(void *addr, std::size_t length, int access) {
        Task task{addr, length, access, {}};
        std::future<Region> future = task.promise.get_future();
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            tasks_.push(std::move(task));
        }
        not_empty_.notify_one();
        return future;
    }

  private:
    struct Task {
        void *addr;
        std::size_t length;
        int access;
        std::promise<Region> promise;
    };

    void work() {
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex_);
            not_empty_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
            if (tasks_.empty())
                return;
            Task task = std::move(tasks_.front());
            tasks_.pop();
            lock.unlock();
            perform(task);
        }
    }

    void perform(Task &task) {
        try {
            ibv_mr *mr = ibv_reg_mr(pd_, task.addr, task.length, task.access);
            if (mr == nullptr)
                throw std::system_error(errno, std::generic_category(), "ibv_reg_mr");
            task.promise.set_value(std::make_shared<MemoryRegion>(mr));
        } catch (...) {
            task.promise.set_exception(std::current_exception());
        }
    }

    ibv_pd *pd_;
    std::mutex mutex_;
    std::condition_variable not_empty_;
    std::queue<Task> tasks_;
    bool stop_ = false;
    std::vector<std::thread> workers_;
};

} // namespace bench

#endif
