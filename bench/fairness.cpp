// SPDX-License-Identifier: MIT OR Apache-2.0
// Small requests while large ones are under way, and what submitting a large one takes.
#include "bench.hpp"
#include "libamr.hpp"
#include "mapping.hpp"
#include "peer_pool.hpp"
#include <array>
#include <chrono>
#include <future>
#include <vector>

namespace bench {

namespace {

constexpr unsigned workers = 2;
constexpr unsigned queue_depth = 65'536;
constexpr std::size_t parts = 8;
constexpr std::chrono::milliseconds pause{1};
// So many small requests, a millisecond apart, are more than any contestant needs.
constexpr std::size_t most_small = 60'000;

constexpr double wait_limit_ms = 10;
constexpr double ratio_limit = 1.0 / 50;
constexpr double submit_limit_us = 20;

// When small requests were submitted and when the caller got their regions.
class Waits {
  public:
    Waits() : submitted_(most_small), waits_ms_(most_small) {}

    void submitted(std::size_t i) {
        submitted_[i] = Clock::now();
        count_ = i + 1;
    }

    void done(std::size_t i) {
        waits_ms_[i] = nanoseconds(Clock::now() - submitted_[i]) / 1e6;
    }

    double percentile_ms() {
        waits_ms_.resize(count_);
        return quantile(waits_ms_, 0.99);
    }

  private:
    std::vector<Clock::time_point> submitted_;
    std::vector<double> waits_ms_;
    std::size_t count_ = 0;
};

class LibamrSide {
  public:
    LibamrSide(const Device &device, CompletionQueue &cq) : device_(device), cq_(cq) {}

    void submit_large(char *data, std::size_t length) {
        post(large_id, data, length);
        larges_++;
    }

    void submit_small(std::size_t i) {
        post(i, device_.block(i), Device::block_size);
        smalls_++;
    }

    // Takes what comes until then; less if it came earlier.
    void take_until(Clock::time_point end, Waits &waits) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
        const int timeout = std::max<int>(static_cast<int>(left.count()), 0);
        const std::size_t ready = cq_.poll(wc_.data(), wc_.size(), timeout);
        for (std::size_t i = 0; i < ready; i++) {
            check(wc_[i].status, "a registration failed");
            regions_.push_back(wc_[i].mr);
            if (wc_[i].wr_id == large_id) {
                larges_--;
            } else {
                waits.done(wc_[i].wr_id);
                smalls_--;
            }
        }
    }

    bool has_large() const {
        return larges_ != 0;
    }

    bool has_small() const {
        return smalls_ != 0;
    }

    void finish() {
        deregister(regions_);
    }

  private:
    static constexpr std::uint64_t large_id = UINT64_MAX;

    void post(std::uint64_t id, void *data, std::size_t length) {
        const amr_wr request = registration(device_, id, data, length);
        cq_.post(&request, 1);
    }

    const Device &device_;
    CompletionQueue &cq_;
    std::array<amr_wc, 64> wc_;
    std::vector<ibv_mr *> regions_;
    std::size_t larges_ = 0;
    std::size_t smalls_ = 0;
};

// The pool is first in, first out: its futures become ready nearly in their order.
class PeerSide {
  public:
    PeerSide(const Device &device, PeerPool &pool) : device_(device), pool_(pool) {}

    void submit_large(char *data, std::size_t length) {
        larges_.push_back(pool_.register_memory(data, length, Device::access));
    }

    void submit_small(std::size_t i) {
        smalls_.push_back(
            pool_.register_memory(device_.block(i), Device::block_size, Device::access));
    }

    void take_until(Clock::time_point end, Waits &waits) {
        while (has_large() && is_ready(larges_[larges_taken_], end))
            regions_.push_back(larges_[larges_taken_++].get());
        while (has_small() && is_ready(smalls_[smalls_taken_], end)) {
            waits.done(smalls_taken_);
            regions_.push_back(smalls_[smalls_taken_++].get());
        }
    }

    bool has_large() const {
        return larges_taken_ != larges_.size();
    }

    bool has_small() const {
        return smalls_taken_ != smalls_.size();
    }

    void finish() {
        regions_.clear();
    }

  private:
    using Future = std::future<PeerPool::Region>;

    static bool is_ready(const Future &future, Clock::time_point end) {
        return future.wait_until(end) == std::future_status::ready;
    }

    const Device &device_;
    PeerPool &pool_;
    std::vector<Future> larges_, smalls_;
    std::vector<PeerPool::Region> regions_;
    std::size_t larges_taken_ = 0;
    std::size_t smalls_taken_ = 0;
};

struct Found {
    double submit_us; // the thread's own time for the first large request
    double wait_ms;   // 99th percentile of the small requests
};

// Registers fresh memory in so many requests, and a block every millisecond until that is done. The
// caller does nothing but submit, sleep and take regions, as an event loop does.
template <typename Side> Found run_side(Side &&side, std::size_t length, std::size_t count) {
    warm_up(length);
    const Mapping mapping(length, Pages::small);
    Waits waits;
    // Nothing is used for the first time when the large request comes.
    waits.submitted(0);
    side.submit_small(0);
    while (side.has_small())
        side.take_until(Clock::now() + pause, waits);

    const double submit_start = thread_nanoseconds();
    side.submit_large(mapping.data(), length / count);
    const double submit_us = (thread_nanoseconds() - submit_start) / 1e3;
    for (std::size_t i = 1; i < count; i++)
        side.submit_large(mapping.data() + i * (length / count), length / count);

    Clock::time_point next = Clock::now();
    for (std::size_t i = 1; side.has_large() && i < most_small; i++) {
        waits.submitted(i);
        side.submit_small(i);
        next = std::max(next + pause, Clock::now());
        do
            side.take_until(next, waits);
        while (Clock::now() < next);
    }
    while (side.has_large() || side.has_small())
        side.take_until(Clock::now() + pause, waits);
    side.finish();
    return {submit_us, waits.percentile_ms()};
}

} // namespace

void run_fairness(const Bench &bench) {
    const std::size_t length = bench.size(8 * gibibyte, 512 * mebibyte);
    const Engine engine(workers, queue_depth);
    CompletionQueue cq(engine.get(), queue_depth);
    PeerPool pool(bench.device.pd(), workers);
    Series submit, wait_one, wait_parts, wait_peer;
    bench.rounds("round", [&] {
        const Found one = run_side(LibamrSide(bench.device, cq), length, 1);
        submit.add(one.submit_us);
        wait_one.add(one.wait_ms);
        wait_parts.add(run_side(LibamrSide(bench.device, cq), length, parts).wait_ms);
        wait_peer.add(run_side(PeerSide(bench.device, pool), length, parts).wait_ms);
    });

    const std::string each = std::to_string(parts) + " of " + size_text(length / parts);
    bench.add({"99th percentile beside " + size_text(length),
               "ms",
               {"libamr", wait_one},
               std::nullopt,
               bench.time_at_most(wait_limit_ms)});
    bench.add({"99th percentile beside " + each,
               "ms",
               {"libamr", wait_parts},
               std::nullopt,
               bench.time_at_most(wait_limit_ms)});
    bench.add({"99th percentile beside " + each,
               "ms",
               {"libamr", wait_parts},
               Contestant{"usual way", wait_peer},
               bench.ratio_at_most(ratio_limit)});
    bench.add({"submitting " + size_text(length) + ", own time",
               "us",
               {"amr_post", submit},
               std::nullopt,
               bench.time_at_most(submit_limit_us)});
}

} // namespace bench
