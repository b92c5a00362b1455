// SPDX-License-Identifier: MIT OR Apache-2.0
// The asynchronous registration of the lecture that libamr answers to, written plainly: what
// amr::AsyncMRManager is compared with.
//
// Step by step as it stands there: a task with a default-constructed promise, pushed under the
// mutex, and a notification after it; workers that make a task, wait for the next one under the
// mutex and move it in; a std::shared_ptr of a new region. What it prints is left out.
#ifndef AMR_BENCH_DOCUMENT_POOL_HPP
#define AMR_BENCH_DOCUMENT_POOL_HPP

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <future>
#include <infiniband/verbs.h>
#include <memory>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

class DocumentRegion {
  public:
    DocumentRegion(ibv_mr *mr, void *addr, std::size_t length)
        : mr_(mr), addr_(addr), length_(length) {}

    DocumentRegion(const DocumentRegion &) = delete;
    DocumentRegion &operator=(const DocumentRegion &) = delete;

    ~DocumentRegion() {
        ibv_dereg_mr(mr_);
    }

    void *get_addr() const {
        return addr_;
    }

    std::size_t get_length() const {
        return length_;
    }

  private:
    ibv_mr *mr_;
    void *addr_;
    std::size_t length_;
};

class DocumentPool {
  public:
    using Region = std::shared_ptr<DocumentRegion>;

    DocumentPool(ibv_pd *pd, unsigned workers) : pd_(pd) {
        for (unsigned i = 0; i < workers; i++)
            workers_.emplace_back(&DocumentPool::work, this);
    }

    DocumentPool(const DocumentPool &) = delete;
    DocumentPool &operator=(const DocumentPool &) = delete;

    ~DocumentPool() {
        {
            // Without the mutex, as it stands there, a worker can miss this and never end.
            const std::lock_guard<std::mutex> lock(mutex_);
            stop_.store(true);
        }
        not_empty_.notify_all();
        for (std::thread &worker : workers_)
            worker.join();
    }

    std::future<Region> register_memory(void *addr, std::size_t length, int access) {
        Task task;
        task.addr = addr;
        task.length = length;
        task.access = access;
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
        while (!stop_.load()) {
            Task task;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                not_empty_.wait(lock, [this] { return !tasks_.empty() || stop_.load(); });
                if (stop_.load() && tasks_.empty())
                    break;
                task = std::move(tasks_.front());
                tasks_.pop();
            }
            perform(task);
        }
    }

    void perform(Task &task) {
        try {
            ibv_mr *mr = ibv_reg_mr(pd_, task.addr, task.length, task.access);
            if (mr == nullptr)
                throw std::runtime_error("Failed to register memory region: " +
                                         std::string(std::strerror(errno)));
            task.promise.set_value(Region(new DocumentRegion(mr, task.addr, task.length)));
        } catch (...) {
            task.promise.set_exception(std::current_exception());
        }
    }

    ibv_pd *pd_;
    std::mutex mutex_;
    std::condition_variable not_empty_;
    std::queue<Task> tasks_;
    std::atomic<bool> stop_{false};
    std::vector<std::thread> workers_;
};

} // namespace bench

#endif
