// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory that nobody has touched yet: how long until its region is there.
#include "bench.hpp"
#include "ways.hpp"
#include <string>

namespace bench {

namespace {

constexpr unsigned touching_threads = 2;

constexpr double small_pages_limit = 0.65;
constexpr double small_pages_touched_limit = 0.6;
constexpr double huge_pages_limit = 0.25;
constexpr double huge_pages_touched_limit = 0.3;
constexpr double system_calls_limit = 1.15;

// In milliseconds. Each contestant has a mapping of its own, and finds the same state of the
// machine: as much memory was touched and given back just before.
double time_fresh(Way &way, std::size_t length) {
    warm_up(length);
    const Mapping mapping(length, Pages::small);
    return time_of(way, {mapping.data(), length, 1}) / 1e6;
}

// In milliseconds, for one length. With 4 KiB pages, if nothing else is said.
struct Times {
    Series blocking, touching, libamr, libamr_huge, system_calls, system_calls_huge;
};

class Contest {
  public:
    explicit Contest(const Bench &bench)
        : bench_(bench), blocking_(bench.device), touching_(bench.device, touching_threads),
          system_calls_(bench.device, Pages::small), system_calls_huge_(bench.device, Pages::huge),
          libamr_(bench.device, all_cpus(), Pages::small),
          libamr_huge_(bench.device, all_cpus(), Pages::huge) {}

    void measure(std::size_t length, Times &times) {
        times.blocking.add(time_fresh(blocking_, length));
        times.libamr_huge.add(time_fresh(libamr_huge_, length));
        times.touching.add(time_fresh(touching_, length));
    }

    void measure_rest(std::size_t length, Times &times) {
        times.libamr.add(time_fresh(libamr_, length));
        times.system_calls.add(time_fresh(system_calls_, length));
        times.system_calls_huge.add(time_fresh(system_calls_huge_, length));
    }

    void judge(std::size_t length, const Times &times) const {
        const std::string what = size_text(length) + " fresh, huge against 4 KiB";
        const Contestant subject{libamr_huge_.name(), times.libamr_huge};
        // In a quick look this is a matter of few milliseconds.
        add(what, subject, {blocking_.name(), times.blocking},
            bench_.ratio_at_most(huge_pages_limit));
        add(what, subject, {touching_.name(), times.touching},
            bench_.ratio_at_most(huge_pages_touched_limit));
    }

    void judge_rest(std::size_t length, const Times &times) const {
        const std::string what = size_text(length) + " fresh, 4 KiB pages";
        const Contestant subject{libamr_.name(), times.libamr};
        add(what, subject, {blocking_.name(), times.blocking},
            bench_.long_ratio_at_most(small_pages_limit));
        add(what, subject, {touching_.name(), times.touching},
            bench_.long_ratio_at_most(small_pages_touched_limit));
        // As far as the kernel lets anybody go.
        add(what, subject, {system_calls_.name(), times.system_calls},
            bench_.undisturbed_ratio_at_most(system_calls_limit));
        add(size_text(length) + " fresh, huge pages", {libamr_huge_.name(), times.libamr_huge},
            {system_calls_huge_.name(), times.system_calls_huge},
            bench_.undisturbed_ratio_at_most(system_calls_limit));
    }

  private:
    void add(const std::string &what, const Contestant &subject, const Contestant &reference,
             const std::optional<Limit> &limit) const {
        bench_.add({what, "ms", subject, reference, limit});
    }

    const Bench &bench_;
    Blocking blocking_;
    TouchFirst touching_;
    SystemCalls system_calls_, system_calls_huge_;
    Libamr libamr_, libamr_huge_;
};

} // namespace

void run_fault_in(const Bench &bench) {
    const std::size_t length = bench.size(1 * gibibyte, 128 * mebibyte);
    constexpr std::size_t longer = 4 * gibibyte;
    Contest contest(bench);
    Times times, longer_times;
    bench.rounds("round", [&] {
        contest.measure(length, times);
        contest.measure_rest(length, times);
        if (!bench.is_quick())
            contest.measure(longer, longer_times);
    });
    contest.judge_rest(length, times);
    contest.judge(length, times);
    if (!bench.is_quick())
        contest.judge(longer, longer_times);
}

} // namespace bench
