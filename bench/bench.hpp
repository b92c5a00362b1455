// SPDX-License-Identifier: MIT OR Apache-2.0
// What a group of benchmarks is given, and the groups.
//
// A group is one file with one function. A further one is declared at the end of this file and
// added to the list in main.cpp.
#ifndef AMR_BENCH_BENCH_HPP
#define AMR_BENCH_BENCH_HPP

#include "device.hpp"
#include "progress.hpp"
#include "report.hpp"
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace bench {

class Bench {
  public:
    Bench(const Device &device, const Progress &progress, unsigned rounds, bool quick,
          GroupReport &report)
        : device(device), progress_(progress), rounds_(rounds), quick_(quick), report_(report) {}

    // One of the two: the full size, or the one for a quick look.
    std::size_t size(std::size_t full, std::size_t quick) const {
        return quick_ ? quick : full;
    }

    // Runs all contestants of a group once, round by round: what disturbs the machine for a while
    // disturbs each of them.
    template <typename Round> void rounds(const std::string &what, Round round) const {
        for (unsigned i = 1; i <= rounds_; i++) {
            step(what, i, rounds_);
            round();
        }
    }

    bool is_quick() const {
        return quick_;
    }

    void step(const std::string &what, std::size_t number, std::size_t count) const {
        progress_.show(report_.name + ": " + what + ", " + std::to_string(number) + " of " +
                       std::to_string(count));
    }

    // Limits for a ratio of times. A quick look is short and its machine shared, so it gives room.
    std::optional<Limit> ratio_at_most(double ratio) const {
        return limit(Limit::Bound::at_most, quick_ ? ratio * room : ratio);
    }

    // The same for what the load of a shared machine changes by more than that room.
    std::optional<Limit> undisturbed_ratio_at_most(double ratio) const {
        return quick_ ? std::nullopt : ratio_at_most(ratio);
    }

    std::optional<Limit> ratio_at_least(double ratio) const {
        return limit(Limit::Bound::at_least, quick_ ? ratio / room : ratio);
    }

    // The same for times of many milliseconds, which are less easily disturbed.
    std::optional<Limit> long_ratio_at_most(double ratio) const {
        return limit(Limit::Bound::at_most, quick_ ? ratio * long_room : ratio);
    }

    std::optional<Limit> time_at_most(double time) const {
        return limit(Limit::Bound::at_most, quick_ ? time * room : time);
    }

    std::optional<Limit> at_most(double value) const {
        return limit(Limit::Bound::at_most, value);
    }

    void add(Row row) const {
        report_.rows.push_back(std::move(row));
    }

    void add(Panel panel) const {
        report_.panels.push_back(std::move(panel));
    }

    const Device &device;

  private:
    static constexpr double room = 6;
    static constexpr double long_room = 4;

    // The limits are those of the simulated device: no other has to keep them.
    std::optional<Limit> limit(Limit::Bound bound, double value) const {
        return device.is_simulated() ? std::optional<Limit>({bound, value}) : std::nullopt;
    }

    const Progress &progress_;
    unsigned rounds_;
    bool quick_;
    GroupReport &report_;
};

void run_burst(const Bench &bench);
void run_futures(const Bench &bench);
void run_idle(const Bench &bench);
void run_batch(const Bench &bench);
void run_memory(const Bench &bench);
void run_scaling(const Bench &bench);
void run_fault_in(const Bench &bench);
void run_resident(const Bench &bench);
void run_fairness(const Bench &bench);
void run_sweep(const Bench &bench);

} // namespace bench

#endif
