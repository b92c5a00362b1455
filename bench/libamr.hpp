// SPDX-License-Identifier: MIT OR Apache-2.0
// libamr's handles with C++ lifetimes, and errors as exceptions.
#ifndef AMR_BENCH_LIBAMR_HPP
#define AMR_BENCH_LIBAMR_HPP

#include "device.hpp"
#include <algorithm>
#include <amr/amr.h>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <vector>

namespace bench {

// Workers of every pool that is compared with another: the default engine's too. Registrations
// block in the kernel and the device, so pools for them have more threads than there are CPUs.
constexpr unsigned pool_workers = 8;

// Throws if it is an errno value.
inline void check(int error, const char *what) {
    if (error != 0)
        throw std::system_error(error, std::generic_category(), what);
}

class Engine {
  public:
    Engine(unsigned workers, unsigned queue_depth) {
        amr_engine_attr attr{};
        attr.size = sizeof(attr);
        attr.workers = workers;
        attr.queue_depth = queue_depth;
        engine_ = amr_create_engine(&attr);
        if (engine_ == nullptr)
            check(errno, "amr_create_engine");
    }

    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    ~Engine() {
        amr_destroy_engine(engine_);
    }

    amr_engine *get() const {
        return engine_;
    }

  private:
    amr_engine *engine_;
};

class CompletionQueue {
  public:
    CompletionQueue(amr_engine *engine, std::uint32_t capacity)
        : cq_(amr_create_cq(engine, capacity)) {
        if (cq_ == nullptr)
            check(errno, "amr_create_cq");
    }

    CompletionQueue(const CompletionQueue &) = delete;
    CompletionQueue &operator=(const CompletionQueue &) = delete;

    ~CompletionQueue() {
        amr_destroy_cq(cq_);
    }

    // All of them, in one call.
    void post(const amr_wr *wr, std::size_t count) {
        check(amr_post(cq_, wr, count, nullptr), "amr_post");
    }

    // Writes the completions that come until the time is over, and returns how many.
    std::size_t poll(amr_wc *wc, std::size_t limit, int timeout_ms) {
        const int ready = amr_wait_cq(cq_, static_cast<int>(limit), wc, timeout_ms);
        if (ready < 0)
            check(-ready, "amr_wait_cq");
        return static_cast<std::size_t>(ready);
    }

    // Waits for one completion, whose region it returns.
    ibv_mr *read_one() {
        wait(1);
        return region(wc_[0]);
    }

    // Waits until all regions have come; a deregistration gives none.
    void read(std::vector<ibv_mr *> &regions) {
        for (std::size_t count = 0; count < regions.size();) {
            const std::size_t limit = std::min(regions.size() - count, wc_.size());
            const std::size_t ready = wait(limit);
            for (std::size_t i = 0; i < ready; i++)
                regions[count++] = region(wc_[i]);
        }
    }

  private:
    std::size_t wait(std::size_t limit) {
        return poll(wc_.data(), limit, -1);
    }

    static ibv_mr *region(const amr_wc &wc) {
        check(wc.status, "a request failed");
        return wc.mr;
    }

    amr_cq *cq_;
    std::array<amr_wc, 256> wc_;
};

// A work request that registers a buffer.
inline amr_wr registration(const Device &device, std::uint64_t wr_id, void *addr,
                           std::size_t length) {
    amr_wr request{};
    request.wr_id = wr_id;
    request.opcode = AMR_OP_REG_MR;
    request.op.reg_mr.pd = device.pd();
    request.op.reg_mr.addr = addr;
    request.op.reg_mr.length = length;
    request.op.reg_mr.access = Device::access;
    return request;
}

// A work request that deregisters a region.
inline amr_wr deregistration(ibv_mr *mr) {
    amr_wr request{};
    request.opcode = AMR_OP_DEREG_MR;
    request.op.dereg_mr.mr = mr;
    return request;
}

// Work requests that register one block of the device's memory each.
inline std::vector<amr_wr> registrations(const Device &device, std::size_t count) {
    std::vector<amr_wr> requests;
    requests.reserve(count);
    for (std::size_t i = 0; i < count; i++)
        requests.push_back(registration(device, i, device.block(i), Device::block_size));
    return requests;
}

} // namespace bench

#endif
