// SPDX-License-Identifier: MIT OR Apache-2.0
// amr_bench: what libamr costs, and whether it keeps its limits. See README.md.
#include "bench.hpp"
#include "libamr.hpp"
#include "mapping.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <getopt.h>
#include <iostream>
#include <stdexcept>

namespace bench {

namespace {

constexpr int exit_missed = 1;
constexpr int exit_failed = 2;
constexpr int exit_skipped = 77;

struct Extent {
    unsigned rounds;
    std::size_t memory = 0; // that is pinned
};

struct Group {
    const char *name;
    const char *title;
    const char *settings; // of the simulated device
    enum class Needs { nothing, simulation, pins } needs;
    Extent full;
    Extent quick;
    void (*run)(const Bench &bench);
    bool by_name_only = false;
};

using Needs = Group::Needs;

constexpr std::array<Group, 10> groups = {{
    {"burst",
     "many registrations at once, instant device",
     "pins=0",
     Needs::nothing,
     {11},
     {7},
     run_burst},
    {"futures",
     "std::future for many registrations at once, instant device",
     "pins=0",
     Needs::nothing,
     {11},
     {7},
     run_futures},
    {"idle",
     "round trip of one registration, workers asleep, instant device",
     "pins=0",
     Needs::nothing,
     {11},
     {7},
     run_idle},
    {"batch",
     "1000 requests in one call and one by one, instant device",
     "pins=0",
     Needs::nothing,
     {11},
     {7},
     run_batch},
    {"memory", "resident memory", "pins=0", Needs::simulation, {11}, {7}, run_memory},
    {"scaling",
     "throughput with a device that takes 1 ms a call",
     "pins=0,reg_delay_us=1000",
     Needs::simulation,
     {11},
     {7},
     run_scaling},
    {"fault_in",
     "one registration of memory that nobody has touched yet",
     "pins=1",
     Needs::pins,
     {7, 4 * gibibyte},
     {5, 128 * mebibyte},
     run_fault_in},
    {"resident",
     "one registration of memory that is there already",
     "pins=1",
     Needs::pins,
     {7, 2 * gibibyte},
     {5, 512 * mebibyte},
     run_resident},
    {"fairness",
     "registrations of 4 KiB beside large ones, 2 workers",
     "pins=1",
     Needs::pins,
     {7, 8 * gibibyte},
     {5, 512 * mebibyte},
     run_fairness},
    {"sweep",
     "all ways, sizes, pages and numbers of workers; no limits",
     "pins=1",
     Needs::pins,
     {3, 8 * gibibyte},
     {3, 128 * mebibyte},
     run_sweep,
     true},
}};

struct Options {
    bool quick = false;
    unsigned rounds = 0; // 0: as many as is usual
    std::string json;
    std::string plot;
    std::string device;
    std::vector<std::string> groups; // empty: all but those that are run by name only
};

void print_usage(std::ostream &out) {
    out << "Usage: amr_bench [OPTION]... [GROUP]...\n\n"
           "  --quick         a short version, with room in the limits for times\n"
           "  --rounds N      rounds of each comparison\n"
           "  --json FILE     write the result with the values of all rounds\n"
           "  --plot FILE     draw the result of the group sweep, as SVG\n"
           "  --device NAME   measure on this device (default: the first)\n"
           "  --help          print this\n\n"
           "Groups (default: all but those in brackets):\n";
    for (const Group &group : groups)
        out << (group.by_name_only ? "  [" : "  ") << group.name
            << (group.by_name_only ? "]: " : ": ") << group.title << '\n';
    out << "\nExit status: 0, 1 if a limit was missed, 2 on an error, 77 if a group was skipped.\n";
}

unsigned parse_rounds(const std::string &text) {
    std::size_t end = 0;
    unsigned long rounds = 0;
    try {
        rounds = std::stoul(text, &end);
    } catch (const std::exception &) {
        end = 0;
    }
    if (end == 0 || end != text.size() || rounds < 1 || rounds > 1000)
        throw std::invalid_argument("--rounds: a number from 1 to 1000 is needed");
    return static_cast<unsigned>(rounds);
}

std::string parse_group(const std::string &name) {
    const bool known = std::any_of(groups.begin(), groups.end(),
                                   [&](const Group &group) { return name == group.name; });
    if (!known)
        throw std::invalid_argument("there is no group '" + name + "', see --help");
    return name;
}

Options parse_options(int argc, char **argv) {
    static const option long_options[] = {
        {"quick", no_argument, nullptr, 'q'},
        {"rounds", required_argument, nullptr, 'r'},
        {"json", required_argument, nullptr, 'j'},
        {"plot", required_argument, nullptr, 'p'},
        {"device", required_argument, nullptr, 'd'},
        {"help", no_argument, nullptr, 'h'},
        {nullptr, 0, nullptr, 0},
    };
    Options options;
    for (int key; (key = getopt_long(argc, argv, "", long_options, nullptr)) != -1;) {
        switch (key) {
        case 'q':
            options.quick = true;
            break;
        case 'r':
            options.rounds = parse_rounds(optarg);
            break;
        case 'j':
            options.json = optarg;
            break;
        case 'p':
            options.plot = optarg;
            break;
        case 'd':
            options.device = optarg;
            break;
        case 'h':
            print_usage(std::cout);
            std::exit(EXIT_SUCCESS);
        default:
            print_usage(std::cerr);
            std::exit(exit_failed);
        }
    }
    std::transform(argv + optind, argv + argc, std::back_inserter(options.groups), parse_group);
    const auto &names = options.groups;
    if (!options.plot.empty() && std::find(names.begin(), names.end(), "sweep") == names.end())
        throw std::invalid_argument("--plot: the group sweep is needed");
    return options;
}

// The default engine, which has callbacks, is configured by the environment.
void configure_default_engine() {
    setenv("AMR_WORKERS", std::to_string(pool_workers).c_str(), 1);
    setenv("AMR_QUEUE_DEPTH", "262144", 1);
}

bool is_wanted(const Options &options, const Group &group) {
    const auto &names = options.groups;
    if (names.empty())
        return !group.by_name_only;
    return std::find(names.begin(), names.end(), group.name) != names.end();
}

double lockable_bytes() {
    amr_limits limits{};
    limits.size = sizeof(limits);
    check(amr_query_limits(nullptr, &limits), "amr_query_limits");
    return limits.cap_ipc_lock != 0 ? HUGE_VAL : static_cast<double>(limits.memlock_soft);
}

// Why a group cannot be run here; empty if it can.
std::string obstacle(const Group &group, const Extent &extent, const Device &device) {
    if (group.needs == Needs::simulation && !device.is_simulated())
        return "needs the simulated device";
    if (group.needs == Needs::pins && !device.can_pin())
        return "the simulated device cannot pin memory here";
    const std::size_t memory = extent.memory;
    if (memory == 0)
        return "";
    if (lockable_bytes() < static_cast<double>(memory))
        return size_text(memory) + " cannot be pinned: see ulimit -l";
    // The machine needs some memory besides.
    if (available_bytes() < 1.25 * static_cast<double>(memory))
        return "there is too little free memory for " + size_text(memory);
    return "";
}

GroupReport run_group(const Group &group, const Device &device, const Progress &progress,
                      const Options &options) {
    const Extent &extent = options.quick ? group.quick : group.full;
    GroupReport result{group.name,
                       group.title,
                       group.settings,
                       obstacle(group, extent, device),
                       options.rounds != 0 ? options.rounds : extent.rounds,
                       {},
                       {}};
    if (!result.skipped.empty())
        return result;
    device.configure(std::string("reg_delay_us=0,dereg_delay_us=0,") + group.settings);
    group.run(Bench(device, progress, result.rounds, options.quick, result));
    return result;
}

Report run_groups(const Options &options) {
    const Device device(options.device);
    Report report{amr_version(), device.name(),      device.is_simulated(),
                  options.quick, describe_machine(), {}};
    const Progress progress;
    for (const Group &group : groups) {
        if (is_wanted(options, group))
            report.groups.push_back(run_group(group, device, progress, options));
    }
    return report;
}

void write_file(const std::string &path, const Report &report,
                void (*print)(std::ostream &out, const Report &report)) {
    std::ofstream file(path);
    print(file, report);
    if (!file.flush())
        throw std::runtime_error("cannot write " + path);
}

int run(int argc, char **argv) {
    const Options options = parse_options(argc, argv);
    configure_default_engine();
    const Report report = run_groups(options);
    print_table(std::cout, report);
    if (!options.json.empty())
        write_file(options.json, report, print_json);
    if (!options.plot.empty())
        write_file(options.plot, report, print_plot);
    if (report.any_missed())
        return exit_missed;
    return report.any_skipped() ? exit_skipped : EXIT_SUCCESS;
}

} // namespace

} // namespace bench

int main(int argc, char **argv) {
    try {
        return bench::run(argc, argv);
    } catch (const std::exception &error) {
        std::cerr << "amr_bench: " << error.what() << '\n';
        return bench::exit_failed;
    }
}
