// SPDX-License-Identifier: MIT OR Apache-2.0
// The ways to register large memory that are compared with one another.
#ifndef AMR_BENCH_WAYS_HPP
#define AMR_BENCH_WAYS_HPP

#include "device.hpp"
#include "libamr.hpp"
#include "mapping.hpp"
#include "peer_pool.hpp"
#include "stats.hpp"
#include <string>
#include <vector>

namespace bench {

// Buffers of one length, one after the other.
struct Buffers {
    char *data;
    std::size_t length;
    std::size_t count;

    char *at(std::size_t i) const {
        return data + i * length;
    }

    std::size_t bytes() const {
        return length * count;
    }
};

class Way {
  public:
    explicit Way(std::string name) : name_(std::move(name)) {}
    virtual ~Way() = default;

    Way(const Way &) = delete;
    Way &operator=(const Way &) = delete;

    const std::string &name() const {
        return name_;
    }

    // Returns when the caller has a region for each buffer.
    virtual void acquire(const Buffers &buffers) = 0;
    virtual void release() = 0;

  private:
    std::string name_;
};

// ibv_reg_mr in the calling thread.
class Blocking : public Way {
  public:
    explicit Blocking(const Device &device, const std::string &name = "ibv_reg_mr")
        : Way(name), device_(device) {}

    void acquire(const Buffers &buffers) override;
    void release() override;

  private:
    const Device &device_;
    std::vector<ibv_mr *> regions_;
};

// What programs do by hand: they touch all memory with several threads, and then register it.
class TouchFirst : public Blocking {
  public:
    TouchFirst(const Device &device, unsigned threads)
        : Blocking(device, "memset by " + std::to_string(threads) + ", then reg"),
          threads_(threads) {}

    void acquire(const Buffers &buffers) override;

  private:
    unsigned threads_;
};

// The system calls that libamr makes, and nothing around them.
class SystemCalls : public Blocking {
  public:
    SystemCalls(const Device &device, Pages pages);

    void acquire(const Buffers &buffers) override;

  private:
    Pages pages_;
};

// A thread for each call.
class ThreadEach : public Way {
  public:
    explicit ThreadEach(const Device &device) : Way("a thread for each"), device_(device) {}

    void acquire(const Buffers &buffers) override;
    void release() override;

  private:
    const Device &device_;
    std::vector<ibv_mr *> regions_;
};

class UsualWay : public Way {
  public:
    UsualWay(const Device &device, unsigned workers)
        : Way("usual way, " + std::to_string(workers) + " workers"), pool_(device.pd(), workers) {}

    void acquire(const Buffers &buffers) override;
    void release() override;

  private:
    PeerPool pool_;
    std::vector<PeerPool::Region> regions_;
};

// amr_post for both directions, with AMR_WR_HUGEPAGE if huge pages are wanted.
class Libamr : public Way {
  public:
    Libamr(const Device &device, unsigned workers, Pages pages);

    void acquire(const Buffers &buffers) override;
    void release() override;

  private:
    static constexpr unsigned depth = 1024;

    const Device &device_;
    Engine engine_;
    CompletionQueue cq_;
    std::uint32_t flags_;
    std::vector<ibv_mr *> regions_;
};

// Nanoseconds until the caller has all regions, which are deregistered then.
inline double time_of(Way &way, const Buffers &buffers) {
    const Clock::time_point start = Clock::now();
    way.acquire(buffers);
    const double time = nanoseconds(Clock::now() - start);
    way.release();
    return time;
}

} // namespace bench

#endif
