// SPDX-License-Identifier: MIT OR Apache-2.0
// Requests posted a thousand in one call, and the same ones posted one by one.
#include "bench.hpp"
#include "libamr.hpp"
#include <vector>

namespace bench {

namespace {

constexpr std::size_t batch = 1000;
constexpr unsigned queue_depth = 4096;
constexpr double limit = 0.6;

// Sums, in nanoseconds.
struct Cost {
    double posting = 0; // in amr_post, by the calling thread
    double total = 0;   // until the last completion was read

    void add(Clock::time_point start, Clock::time_point posted) {
        posting += nanoseconds(posted - start);
        total += nanoseconds(Clock::now() - start);
    }
};

template <typename Post> void run_once(CompletionQueue &cq, Post post, Cost &cost) {
    std::vector<ibv_mr *> regions(batch);
    const Clock::time_point start = Clock::now();
    post();
    const Clock::time_point posted = Clock::now();
    cq.read(regions);
    cost.add(start, posted);
    deregister(regions);
}

void post_one_by_one(CompletionQueue &cq, const std::vector<amr_wr> &requests) {
    for (const amr_wr &request : requests)
        cq.post(&request, 1);
}

} // namespace

void run_batch(const Bench &bench) {
    const std::size_t repeats = bench.size(100, 30);
    const auto requests_each = static_cast<double>(batch * repeats);
    const std::vector<amr_wr> requests = registrations(bench.device, batch);
    const Engine engine(pool_workers, queue_depth);
    CompletionQueue cq(engine.get(), batch);
    Series posting_batch, posting_single, total_batch, total_single;
    bench.rounds("round", [&] {
        Cost batched, single;
        for (std::size_t i = 0; i < repeats; i++) {
            run_once(
                cq, [&] { cq.post(requests.data(), requests.size()); }, batched);
            run_once(
                cq, [&] { post_one_by_one(cq, requests); }, single);
        }
        posting_batch.add(batched.posting / requests_each);
        posting_single.add(single.posting / requests_each);
        total_batch.add(batched.total / requests_each);
        total_single.add(single.total / requests_each);
    });
    bench.add({"calling thread, each request",
               "ns",
               {"1000 in one amr_post", posting_batch},
               Contestant{"one by one", posting_single},
               bench.ratio_at_most(limit)});
    bench.add({"until its completion was read",
               "ns",
               {"1000 in one amr_post", total_batch},
               Contestant{"one by one", total_single},
               std::nullopt});
}

} // namespace bench
