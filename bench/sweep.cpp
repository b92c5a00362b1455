// SPDX-License-Identifier: MIT OR Apache-2.0
// All ways to register memory: by size, by what is there already, by pages.
#include "bench.hpp"
#include "ways.hpp"
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace bench {

namespace {

constexpr std::size_t smallest = 4 * kibibyte;
constexpr std::size_t step = 8;
constexpr std::array<unsigned, 4> worker_counts = {1, 2, 4, 8};

// Small buffers are registered many at once, as they are in use.
constexpr std::size_t most_at_once = 256;
constexpr std::size_t bytes_at_once = 16 * mebibyte;

struct State {
    const char *title;
    bool resident;
    Pages pages;
};

constexpr std::array<State, 4> states = {{
    {"fresh, 4 KiB pages", false, Pages::small},
    {"fresh, huge pages", false, Pages::huge},
    {"resident, 4 KiB pages", true, Pages::small},
    {"resident, huge pages", true, Pages::huge},
}};

using Ways = std::vector<std::unique_ptr<Way>>;

// Nobody touches memory that is there.
Ways make_ways(const Device &device, const State &state) {
    Ways ways;
    for (const unsigned workers : worker_counts)
        ways.push_back(
            std::make_unique<Libamr>(device, workers, state.resident ? Pages::small : state.pages));
    ways.push_back(std::make_unique<Blocking>(device));
    ways.push_back(std::make_unique<ThreadEach>(device));
    ways.push_back(std::make_unique<UsualWay>(device, pool_workers));
    if (!state.resident)
        ways.push_back(std::make_unique<TouchFirst>(device, all_cpus()));
    return ways;
}

Buffers buffers_in(const Mapping &mapping, std::size_t length) {
    return {mapping.data(), length, mapping.length() / length};
}

// All that is registered at once.
std::size_t total_for(std::size_t length) {
    return length * std::clamp<std::size_t>(bytes_at_once / length, 1, most_at_once);
}

double rate(double bytes, double nanoseconds) {
    return bytes / static_cast<double>(gibibyte) / (nanoseconds / 1e9);
}

// Of zeroing memory with all CPUs, which no way to make fresh memory can beat.
double zeroing_rate(const Mapping &mapping) {
    const Clock::time_point start = Clock::now();
    in_parallel(all_cpus(), mapping.data(), mapping.length(),
                [](char *data, std::size_t length) { std::memset(data, 0, length); });
    return rate(static_cast<double>(mapping.length()), nanoseconds(Clock::now() - start));
}

double rate_fresh(Way &way, std::size_t length, Pages pages) {
    const std::size_t total = total_for(length);
    warm_up(total);
    const Mapping mapping(total, pages);
    return rate(static_cast<double>(total), time_of(way, buffers_in(mapping, length)));
}

std::vector<Series> measure(const Bench &bench, const State &state, const Ways &ways,
                            std::size_t length) {
    std::vector<Series> series(ways.size());
    std::unique_ptr<Mapping> resident;
    if (state.resident) {
        resident = std::make_unique<Mapping>(total_for(length), state.pages);
        resident->populate();
    }
    bench.rounds(std::string(state.title) + ", " + size_text(length), [&] {
        for (std::size_t i = 0; i < ways.size(); i++)
            series[i].add(resident ? rate(static_cast<double>(resident->length()),
                                          time_of(*ways[i], buffers_in(*resident, length)))
                                   : rate_fresh(*ways[i], length, state.pages));
    });
    return series;
}

void sweep(const Bench &bench, const State &state, const std::vector<std::size_t> &lengths,
           double zeroing) {
    const Ways ways = make_ways(bench.device, state);
    Panel panel{state.title, std::vector<Curve>(ways.size()), {"zeroing by all CPUs", {}}};
    for (const std::size_t length : lengths) {
        const std::vector<Series> series = measure(bench, state, ways, length);
        for (std::size_t i = 0; i < ways.size(); i++) {
            panel.curves[i].name = ways[i]->name();
            panel.curves[i].points.push_back({static_cast<double>(length), series[i].median()});
            bench.add({size_text(length) + " " + state.title,
                       "GiB/s",
                       {ways[i]->name(), series[i]},
                       std::nullopt,
                       std::nullopt});
        }
        if (!state.resident)
            panel.limit.points.push_back({static_cast<double>(length), zeroing});
    }
    bench.add(std::move(panel));
}

} // namespace

void run_sweep(const Bench &bench) {
    const std::size_t largest = bench.size(8 * gibibyte, 128 * mebibyte);
    std::vector<std::size_t> lengths;
    for (std::size_t length = smallest; length <= largest; length *= step)
        lengths.push_back(length);

    Series zeroing;
    {
        const Mapping mapping(std::min(largest, gibibyte), Pages::huge);
        mapping.populate();
        bench.rounds("zeroing", [&] { zeroing.add(zeroing_rate(mapping)); });
    }
    bench.add({"zeroing memory that is there",
               "GiB/s",
               {"memset by all CPUs", zeroing},
               std::nullopt,
               std::nullopt});
    for (const State &state : states)
        sweep(bench, state, lengths, zeroing.median());
}

} // namespace bench
