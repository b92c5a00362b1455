// SPDX-License-Identifier: MIT OR Apache-2.0
// Futures for many registrations at once: what the C++ layer makes of them, and how long submitting
// one takes, against the design that it answers to.
#include "bench.hpp"
#include "burst.hpp"
#include "document_pool.hpp"
#include "libamr.hpp"
#include <amr/amr.hpp>
#include <future>
#include <vector>

namespace bench {

namespace {

constexpr double cost_limit = 1.0 / 3;
constexpr double submit_limit = 1.0 / 10;

// A burst of which the caller has a future each. Submit is a call that gives it.
template <typename Region, typename Submit> class FutureBurst {
  public:
    FutureBurst(std::size_t count, Submit submit)
        : futures_(count), regions_(count), submit_(submit) {}

    void submit(std::size_t i) {
        futures_[i] = submit_(i);
    }

    Clock::time_point wait() {
        for (std::size_t i = 0; i < futures_.size(); i++)
            regions_[i] = futures_[i].get();
        return Clock::now();
    }

    void finish() {
        regions_.clear();
    }

  private:
    std::vector<std::future<Region>> futures_;
    std::vector<Region> regions_;
    Submit submit_;
};

// Futures and nothing else: promises that one thread makes, keeps and asks for. What any design
// that gives std::future takes at least.
class PromiseBurst {
  public:
    explicit PromiseBurst(std::size_t count) : promises_(count), futures_(count), regions_(count) {}

    void submit(std::size_t i) {
        std::promise<amr::shared_region> promise;
        futures_[i] = promise.get_future();
        promises_[i] = std::move(promise);
    }

    Clock::time_point wait() {
        for (std::promise<amr::shared_region> &promise : promises_)
            promise.set_value(nullptr);
        for (std::size_t i = 0; i < futures_.size(); i++)
            regions_[i] = futures_[i].get();
        return Clock::now();
    }

    void finish() {}

  private:
    std::vector<std::promise<amr::shared_region>> promises_;
    std::vector<std::future<amr::shared_region>> futures_;
    std::vector<amr::shared_region> regions_;
};

template <typename Region, typename Submit>
FutureBurst<Region, Submit> burst(std::size_t count, Submit submit) {
    return {count, submit};
}

} // namespace

void run_futures(const Bench &bench) {
    const std::size_t count = bench.size(200'000, 50'000);
    const Device &device = bench.device;
    const amr::RDMAContext context = amr::RDMAContext::borrow(device.pd());
    amr::AsyncMRManager manager(context, pool_workers, 262'144);
    DocumentPool pool(device.pd(), pool_workers);
    const auto through_manager = [&](std::size_t i) {
        return manager.register_memory(device.block(i), Device::block_size,
                                       amr::access(Device::access));
    };
    const auto through_pool = [&](std::size_t i) {
        return pool.register_memory(device.block(i), Device::block_size, Device::access);
    };
    using Pooled = DocumentPool::Region;

    Cost cost_manager, cost_pool, cost_promise;
    Series submit_manager, submit_pool;
    bench.rounds("round", [&] {
        measure_cost(burst<amr::shared_region>(count, through_manager), count, cost_manager);
        measure_cost(burst<Pooled>(count, through_pool), count, cost_pool);
        measure_cost(PromiseBurst(count), count, cost_promise);
        submit_manager.add(submit_time(burst<amr::shared_region>(count, through_manager), count));
        submit_pool.add(submit_time(burst<Pooled>(count, through_pool), count));
    });
    bench.add({"submit to region, each request",
               "ns",
               {"AsyncMRManager", cost_manager.passed},
               Contestant{"the lecture's", cost_pool.passed},
               bench.ratio_at_most(cost_limit)});
    bench.add({"processor time, each request",
               "ns",
               {"AsyncMRManager", cost_manager.processor},
               Contestant{"the lecture's", cost_pool.processor},
               std::nullopt});
    bench.add({"std::promise alone, each",
               "ns",
               {"in one thread", cost_promise.processor},
               std::nullopt,
               std::nullopt});
    bench.add({"99th percentile of the submit call",
               "ns",
               {"AsyncMRManager", submit_manager},
               Contestant{"the lecture's", submit_pool},
               bench.undisturbed_ratio_at_most(submit_limit)});
}

} // namespace bench
