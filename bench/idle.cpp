// SPDX-License-Identifier: MIT OR Apache-2.0
// One registration at a time while the pool is asleep: how long until the caller has the region.
//
// To wake a thread on another CPU, which sleeps as well, takes several times longer than on the own
// one, most of all in a virtual machine. Left to itself the scheduler chooses one for each pool and
// stays with it, so both are measured, each for all contestants.
#include "bench.hpp"
#include "libamr.hpp"
#include "peer_pool.hpp"
#include "placement.hpp"
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace bench {

namespace {

// Long enough that every worker has gone to sleep.
constexpr std::chrono::microseconds gap(400);
constexpr double limit = 1.0;

struct Result {
    ibv_mr *mr;
    int status;
};

void on_registered(ibv_mr *mr, int status, void *ctx) {
    static_cast<std::promise<Result> *>(ctx)->set_value({mr, status});
}

// Median time of many round trips in nanoseconds. register_one returns what it registered, which
// is given to release off the clock.
template <typename RegisterOne, typename Release>
double round_trip(std::size_t count, RegisterOne register_one, Release release) {
    std::vector<double> times(count);
    for (std::size_t i = 0; i < count; i++) {
        std::this_thread::sleep_for(gap);
        const Clock::time_point start = Clock::now();
        auto region = register_one(i);
        times[i] = nanoseconds(Clock::now() - start);
        release(region);
    }
    return quantile(times, 0.5);
}

void release_mr(ibv_mr *mr) {
    deregister({mr});
}

double with_callback(const Device &device, std::size_t count) {
    const auto register_one = [&](std::size_t i) {
        std::promise<Result> promise;
        std::future<Result> future = promise.get_future();
        check(amr_register_async(device.pd(), device.block(i), Device::block_size, Device::access,
                                 on_registered, &promise),
              "amr_register_async");
        const Result result = future.get();
        check(result.status, "a registration failed");
        return result.mr;
    };
    return round_trip(count, register_one, release_mr);
}

double with_queue(CompletionQueue &cq, const std::vector<amr_wr> &requests) {
    const auto register_one = [&](std::size_t i) {
        cq.post(&requests[i], 1);
        return cq.read_one();
    };
    return round_trip(requests.size(), register_one, release_mr);
}

double with_peer(const Device &device, PeerPool &pool, std::size_t count) {
    const auto register_one = [&](std::size_t i) {
        return pool.register_memory(device.block(i), Device::block_size, Device::access).get();
    };
    return round_trip(count, register_one, [](PeerPool::Region &region) { region.reset(); });
}

// The contestants, and what they are given.
class Idle {
  public:
    explicit Idle(const Bench &bench)
        : bench_(bench), requests_(registrations(bench.device, bench.size(300, 150))),
          pool_(bench.device.pd(), pool_workers), cq_(amr_default_engine(), 1) {}

    void measure(const std::string &where, int caller_cpu, int workers_cpu) {
        const std::size_t count = requests_.size();
        Series callback, queue, peer;
        {
            const Placement placement(caller_cpu, workers_cpu);
            bench_.rounds(where, [&] {
                callback.add(with_callback(bench_.device, count));
                peer.add(with_peer(bench_.device, pool_, count));
                queue.add(with_queue(cq_, requests_));
            });
        }
        bench_.add({"callback and future, " + where,
                    "ns",
                    {"amr_register_async", callback},
                    Contestant{"usual way", peer},
                    bench_.ratio_at_most(limit)});
        bench_.add({"completion queue, " + where,
                    "ns",
                    {"amr_post, amr_wait_cq", queue},
                    Contestant{"usual way", peer},
                    bench_.ratio_at_most(limit)});
    }

  private:
    const Bench &bench_;
    std::vector<amr_wr> requests_;
    PeerPool pool_;
    CompletionQueue cq_;
};

} // namespace

void run_idle(const Bench &bench) {
    const std::vector<int> cpus = usable_cpus();
    Idle idle(bench);
    idle.measure("same CPU", cpus.front(), cpus.front());
    if (cpus.size() > 1)
        idle.measure("another CPU", cpus.front(), cpus.back());
}

} // namespace bench
