// SPDX-License-Identifier: MIT OR Apache-2.0
// How a burst of registrations is measured. A burst has submit(i), wait(), which returns when the
// caller has all regions, and finish(), which lets them go.
#ifndef AMR_BENCH_BURST_HPP
#define AMR_BENCH_BURST_HPP

#include "stats.hpp"
#include <cstddef>
#include <vector>

namespace bench {

// Calls submit(i) for each i; returns the 99th percentile of the calls' times in nanoseconds.
template <typename Submit> double submit_timed(std::size_t count, Submit submit) {
    std::vector<double> times(count);
    for (std::size_t i = 0; i < count; i++) {
        const Clock::time_point start = Clock::now();
        submit(i);
        times[i] = nanoseconds(Clock::now() - start);
    }
    return quantile(times, 0.99);
}

template <typename Submit> void submit_all(std::size_t count, Submit submit) {
    for (std::size_t i = 0; i < count; i++)
        submit(i);
}

// Of each request, in nanoseconds.
struct Cost {
    Series passed;    // from the first submit until the last one is done
    Series processor; // of all threads
};

template <typename Burst> void measure_cost(Burst &&burst, std::size_t count, Cost &cost) {
    const double processor_start = processor_nanoseconds();
    const Clock::time_point start = Clock::now();
    submit_all(count, [&](std::size_t i) { burst.submit(i); });
    const Clock::time_point end = burst.wait();
    const double processor = processor_nanoseconds() - processor_start;
    burst.finish();
    cost.passed.add(nanoseconds(end - start) / static_cast<double>(count));
    cost.processor.add(processor / static_cast<double>(count));
}

template <typename Burst> double submit_time(Burst &&burst, std::size_t count) {
    const double time = submit_timed(count, [&](std::size_t i) { burst.submit(i); });
    burst.wait();
    burst.finish();
    return time;
}

} // namespace bench

#endif
