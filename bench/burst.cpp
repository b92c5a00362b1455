// SPDX-License-Identifier: MIT OR Apache-2.0
// Many registrations at once: what each of them costs, and how long submitting one takes.
#include "burst.hpp"
#include "bench.hpp"
#include "libamr.hpp"
#include "peer_pool.hpp"
#include <atomic>
#include <future>
#include <vector>

namespace bench {

namespace {

constexpr double cost_limit = 1.0 / 8;
constexpr double submit_limit = 1.0 / 20;

// A burst through amr_register_async. Each callback notes its region; the last one, the time.
class CallbackBurst {
  public:
    CallbackBurst(const Device &device, std::size_t count)
        : device_(device), slots_(count), remaining_(count) {
        for (Slot &slot : slots_)
            slot.burst = this;
    }

    void submit(std::size_t i) {
        check(amr_register_async(device_.pd(), device_.block(i), Device::block_size, Device::access,
                                 on_registered, &slots_[i]),
              "amr_register_async");
    }

    Clock::time_point wait() {
        return ended_.get_future().get();
    }

    void finish() {
        for (const Slot &slot : slots_) {
            check(slot.status, "a registration failed");
            deregister({slot.mr});
        }
    }

  private:
    // Stands for the buffer's own entry in the application's books.
    struct alignas(64) Slot {
        CallbackBurst *burst;
        ibv_mr *mr;
        int status;
    };

    static void on_registered(ibv_mr *mr, int status, void *ctx) {
        Slot &slot = *static_cast<Slot *>(ctx);
        slot.mr = mr;
        slot.status = status;
        if (slot.burst->remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            slot.burst->ended_.set_value(Clock::now());
    }

    const Device &device_;
    std::vector<Slot> slots_;
    std::atomic<std::size_t> remaining_;
    std::promise<Clock::time_point> ended_;
};

// A burst through the usual way.
class PeerBurst {
  public:
    PeerBurst(const Device &device, PeerPool &pool, std::size_t count)
        : device_(device), pool_(pool), futures_(count), regions_(count) {}

    void submit(std::size_t i) {
        futures_[i] = pool_.register_memory(device_.block(i), Device::block_size, Device::access);
    }

    // The caller has its regions once it has got them all: a callback has them by then, too.
    Clock::time_point wait() {
        for (std::size_t i = 0; i < futures_.size(); i++)
            regions_[i] = futures_[i].get();
        return Clock::now();
    }

    void finish() {
        regions_.clear();
    }

  private:
    const Device &device_;
    PeerPool &pool_;
    std::vector<std::future<PeerPool::Region>> futures_;
    std::vector<PeerPool::Region> regions_;
};

// The same registrations without any pool, blocking the caller: what the device itself takes.
class BlockingBurst {
  public:
    BlockingBurst(const Device &device, std::size_t count) : device_(device), regions_(count) {}

    void submit(std::size_t i) {
        regions_[i] =
            ibv_reg_mr(device_.pd(), device_.block(i), Device::block_size, Device::access);
        if (regions_[i] == nullptr)
            check(errno, "ibv_reg_mr");
    }

    Clock::time_point wait() {
        return Clock::now();
    }

    void finish() {
        deregister(regions_);
    }

  private:
    const Device &device_;
    std::vector<ibv_mr *> regions_;
};

} // namespace

void run_burst(const Bench &bench) {
    const std::size_t count = bench.size(200'000, 50'000);
    Cost cost_libamr, cost_peer, cost_blocking;
    Series submit_libamr, submit_peer;
    PeerPool pool(bench.device.pd(), pool_workers);
    bench.rounds("round", [&] {
        measure_cost(CallbackBurst(bench.device, count), count, cost_libamr);
        measure_cost(PeerBurst(bench.device, pool, count), count, cost_peer);
        measure_cost(BlockingBurst(bench.device, count), count, cost_blocking);
        submit_libamr.add(submit_time(CallbackBurst(bench.device, count), count));
        submit_peer.add(submit_time(PeerBurst(bench.device, pool, count), count));
    });
    bench.add({"submit to callback, each request",
               "ns",
               {"amr_register_async", cost_libamr.passed},
               Contestant{"usual way", cost_peer.passed},
               bench.ratio_at_most(cost_limit)});
    bench.add({"processor time, each request",
               "ns",
               {"amr_register_async", cost_libamr.processor},
               Contestant{"usual way", cost_peer.processor},
               std::nullopt});
    bench.add({"without a pool, each request",
               "ns",
               {"ibv_reg_mr in the caller", cost_blocking.passed},
               std::nullopt,
               std::nullopt});
    bench.add({"99th percentile of the submit call",
               "ns",
               {"amr_register_async", submit_libamr},
               Contestant{"usual way", submit_peer},
               bench.ratio_at_most(submit_limit)});
}

} // namespace bench
