// SPDX-License-Identifier: MIT OR Apache-2.0
// What was measured, round by round, and what is said about it.
#ifndef AMR_BENCH_STATS_HPP
#define AMR_BENCH_STATS_HPP

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::duration duration) {
    return std::chrono::duration<double, std::nano>(duration).count();
}

inline double nanoseconds(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// Processor time that all threads of this process have used so far, in nanoseconds. Unlike the time
// that passes it hardly depends on what else runs on the machine.
inline double processor_nanoseconds() {
    return nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
}

// The same for the calling thread.
inline double thread_nanoseconds() {
    return nanoseconds(CLOCK_THREAD_CPUTIME_ID);
}

// The value that the given part of all values does not exceed. Reorders the values.
inline double quantile(std::vector<double> &values, double part) {
    const auto rank =
        static_cast<std::size_t>(std::ceil(part * static_cast<double>(values.size())));
    const auto index = static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
    std::nth_element(values.begin(), values.begin() + index, values.end());
    return values[static_cast<std::size_t>(index)];
}

// One value for each round, in their order.
class Series {
  public:
    void add(double value) {
        values_.push_back(value);
    }

    const std::vector<double> &values() const {
        return values_;
    }

    double median() const {
        std::vector<double> sorted = values_;
        std::sort(sorted.begin(), sorted.end());
        const std::size_t middle = sorted.size() / 2;
        return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    }

    double min() const {
        return *std::min_element(values_.begin(), values_.end());
    }

    double max() const {
        return *std::max_element(values_.begin(), values_.end());
    }

    Series times(double factor) const {
        Series product = *this;
        for (double &value : product.values_)
            value *= factor;
        return product;
    }

  private:
    std::vector<double> values_;
};

} // namespace bench

#endif
