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

// A row for each of the series against which one is judged.
void judge(const Bench &bench, const std::string &what, const Contestant &subject,
           const Contestant &reference, double limit) {
    bench.add({what, "ms", subject, reference, bench.long_ratio_at_most(limit)});
}

} // namespace

void run_fault_in(const Bench &bench) {
    const std::size_t length = bench.size(1 * gibibyte, 256 * mebibyte);
    const std::size_t longer = bench.size(4 * gibibyte, 512 * mebibyte);
    const Device &device = bench.device;
    Blocking blocking(device);
    TouchFirst touching(device, touching_threads);
    SystemCalls system_calls(device);
    Libamr libamr(device, all_cpus(), Pages::small), libamr_huge(device, all_cpus(), Pages::huge);
    Series blocked, touched, called, small, huge, longer_blocked, longer_touched, longer_huge;
    bench.rounds("round", [&] {
        blocked.add(time_fresh(blocking, length));
        small.add(time_fresh(libamr, length));
        touched.add(time_fresh(touching, length));
        called.add(time_fresh(system_calls, length));
        huge.add(time_fresh(libamr_huge, length));
        longer_blocked.add(time_fresh(blocking, longer));
        longer_huge.add(time_fresh(libamr_huge, longer));
        longer_touched.add(time_fresh(touching, longer));
    });

    const std::string fresh = size_text(length) + " fresh, ";
    const std::string longer_fresh = size_text(longer) + " fresh, ";
    judge(bench, fresh + "4 KiB pages", {libamr.name(), small}, {blocking.name(), blocked},
          small_pages_limit);
    judge(bench, fresh + "4 KiB pages", {libamr.name(), small}, {touching.name(), touched},
          small_pages_touched_limit);
    judge(bench, fresh + "huge against 4 KiB pages", {libamr.name(), huge},
          {blocking.name(), blocked}, huge_pages_limit);
    judge(bench, fresh + "huge against 4 KiB pages", {libamr.name(), huge},
          {touching.name(), touched}, huge_pages_touched_limit);
    judge(bench, longer_fresh + "huge against 4 KiB pages", {libamr.name(), longer_huge},
          {blocking.name(), longer_blocked}, huge_pages_limit);
    judge(bench, longer_fresh + "huge against 4 KiB pages", {libamr.name(), longer_huge},
          {touching.name(), longer_touched}, huge_pages_touched_limit);
    judge(bench, fresh + "huge pages", {libamr.name(), huge}, {system_calls.name(), called},
          system_calls_limit);
}

} // namespace bench
