// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory that is there already: what looking for absent pages costs.
#include "bench.hpp"
#include "ways.hpp"

namespace bench {

namespace {

constexpr double limit = 1.08;

struct Times {
    Series libamr;
    Series blocking;
};

// They take turns many times in a round, each as often first as second: one call takes only
// milliseconds.
void measure(std::size_t repeats, Libamr &libamr, Blocking &blocking, const Mapping &mapping,
             Times &times) {
    const Buffers buffers{mapping.data(), mapping.length(), 1};
    double sum_libamr = 0, sum_blocking = 0;
    for (std::size_t i = 0; i < repeats; i++) {
        if (i % 2 == 0)
            sum_libamr += time_of(libamr, buffers);
        sum_blocking += time_of(blocking, buffers);
        if (i % 2 != 0)
            sum_libamr += time_of(libamr, buffers);
    }
    times.libamr.add(sum_libamr / static_cast<double>(repeats) / 1e6);
    times.blocking.add(sum_blocking / static_cast<double>(repeats) / 1e6);
}

} // namespace

void run_resident(const Bench &bench) {
    const std::size_t length = bench.size(1 * gibibyte, 256 * mebibyte);
    const std::size_t repeats = bench.size(10, 4);
    Libamr libamr(bench.device, all_cpus(), Pages::small);
    Blocking blocking(bench.device);
    const Mapping small(length, Pages::small), huge(length, Pages::huge);
    small.populate();
    huge.populate();
    Times times_small, times_huge;
    bench.rounds("round", [&] {
        measure(repeats, libamr, blocking, small, times_small);
        measure(repeats, libamr, blocking, huge, times_huge);
    });
    bench.add({size_text(length) + " resident, 4 KiB pages",
               "ms",
               {libamr.name(), times_small.libamr},
               Contestant{blocking.name(), times_small.blocking},
               bench.long_ratio_at_most(limit)});
    // A call of a fraction of a millisecond says nothing on a machine that is shared.
    bench.add({size_text(length) + " resident, huge pages",
               "ms",
               {libamr.name(), times_huge.libamr},
               Contestant{blocking.name(), times_huge.blocking},
               bench.is_quick() ? std::nullopt : bench.long_ratio_at_most(limit)});
}

} // namespace bench
