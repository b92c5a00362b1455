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
    const std::size_t longer = bench.size(4 * gibibyte, 512 * mebibyte);
    const std::size_t repeats = bench.size(10, 4);
    Libamr libamr(bench.device, all_cpus(), Pages::small);
    Blocking blocking(bench.device);
    const Mapping small(length, Pages::small), huge(length, Pages::huge),
        more_huge(longer, Pages::huge);
    for (const Mapping *mapping : {&small, &huge, &more_huge})
        mapping->populate();
    Times times_small, times_huge, times_more_huge;
    bench.rounds("round", [&] {
        measure(repeats, libamr, blocking, small, times_small);
        measure(repeats, libamr, blocking, huge, times_huge);
        measure(repeats, libamr, blocking, more_huge, times_more_huge);
    });
    const auto add = [&](std::size_t size, const char *pages, const Times &times,
                         const std::optional<Limit> &judged) {
        bench.add({size_text(size) + " resident, " + pages,
                   "ms",
                   {libamr.name(), times.libamr},
                   Contestant{blocking.name(), times.blocking},
                   judged});
    };
    // A call of a fraction of a millisecond says nothing on a machine that is shared.
    add(length, "4 KiB pages", times_small, bench.long_ratio_at_most(limit));
    add(length, "huge pages", times_huge, bench.undisturbed_ratio_at_most(limit));
    // To tell what each GiB takes from what each call takes.
    add(longer, "huge pages", times_more_huge, std::nullopt);
}

} // namespace bench
