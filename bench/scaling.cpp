// SPDX-License-Identifier: MIT OR Apache-2.0
// A device that takes its time for each call: what more workers bring.
#include "bench.hpp"
#include "libamr.hpp"
#include <array>
#include <string>
#include <vector>

namespace bench {

namespace {

constexpr std::array<unsigned, 7> worker_counts = {1, 2, 4, 8, 16, 32, 64};
constexpr unsigned queue_depth = 16'384;
constexpr double limit = 0.9;

// Registrations for each second.
double throughput(const Device &device, unsigned workers, std::size_t calls_each) {
    const std::vector<amr_wr> requests = registrations(device, workers * calls_each);
    std::vector<ibv_mr *> regions(requests.size());
    const Engine engine(workers, queue_depth);
    CompletionQueue cq(engine.get(), static_cast<std::uint32_t>(requests.size()));
    const Clock::time_point start = Clock::now();
    cq.post(requests.data(), requests.size());
    cq.read(regions);
    const double seconds = nanoseconds(Clock::now() - start) / 1e9;
    deregister(regions);
    return static_cast<double>(requests.size()) / seconds;
}

} // namespace

void run_scaling(const Bench &bench) {
    const std::size_t calls_each = bench.size(200, 100);
    std::array<Series, worker_counts.size()> series;
    bench.rounds("round", [&] {
        for (std::size_t i = 0; i < worker_counts.size(); i++)
            series[i].add(throughput(bench.device, worker_counts[i], calls_each));
    });
    for (std::size_t i = 1; i < worker_counts.size(); i++) {
        const std::string workers = std::to_string(worker_counts[i]);
        bench.add({workers + " workers",
                   "registrations/s",
                   {workers + " workers", series[i]},
                   Contestant{workers + " times one worker", series[0].times(worker_counts[i])},
                   bench.ratio_at_least(limit)});
    }
}

} // namespace bench
