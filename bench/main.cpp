// SPDX-License-Identifier: MIT OR Apache-2.0
// amr_bench: what libamr costs, and whether it keeps its limits. See README.md.
#include "bench.hpp"
#include "libamr.hpp"
#include <algorithm>
#include <array>
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

constexpr unsigned full_rounds = 11;
constexpr unsigned quick_rounds = 7;

struct Group {
    const char *name;
    const char *title;
    const char *settings; // of the simulated device
    bool needs_simulation;
    void (*run)(const Bench &bench);
};

constexpr std::array<Group, 6> groups = {{
    {"burst", "many registrations at once, instant device", "pins=0", false, run_burst},
    {"futures", "std::future for many registrations at once, instant device", "pins=0", false,
     run_futures},
    {"idle", "round trip of one registration, workers asleep, instant device", "pins=0", false,
     run_idle},
    {"batch", "1000 requests in one call and one by one, instant device", "pins=0", false,
     run_batch},
    {"memory", "resident memory", "pins=0", true, run_memory},
    {"scaling", "throughput with a device that takes 1 ms a call", "pins=0,reg_delay_us=1000", true,
     run_scaling},
}};

struct Options {
    bool quick = false;
    unsigned rounds = 0; // 0: as many as is usual
    std::string json;
    std::string device;
    std::vector<std::string> groups; // empty: all
};

void print_usage(std::ostream &out) {
    out << "Usage: amr_bench [OPTION]... [GROUP]...\n\n"
           "  --quick         a short version, with room in the limits for times\n"
           "  --rounds N      rounds of each comparison (default "
        << full_rounds << ", with --quick " << quick_rounds
        << ")\n"
           "  --json FILE     write the result with the values of all rounds\n"
           "  --device NAME   measure on this device (default: the first)\n"
           "  --help          print this\n\n"
           "Groups (default: all):\n";
    for (const Group &group : groups)
        out << "  " << group.name << ": " << group.title << '\n';
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
        {"quick", no_argument, nullptr, 'q'},      {"rounds", required_argument, nullptr, 'r'},
        {"json", required_argument, nullptr, 'j'}, {"device", required_argument, nullptr, 'd'},
        {"help", no_argument, nullptr, 'h'},       {nullptr, 0, nullptr, 0},
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
    return options;
}

// The default engine, which has callbacks, is configured by the environment.
void configure_default_engine() {
    setenv("AMR_WORKERS", std::to_string(pool_workers).c_str(), 1);
    setenv("AMR_QUEUE_DEPTH", "262144", 1);
}

bool is_wanted(const Options &options, const Group &group) {
    const auto &names = options.groups;
    return names.empty() || std::find(names.begin(), names.end(), group.name) != names.end();
}

GroupReport run_group(const Group &group, const Device &device, const Progress &progress,
                      const Report &report) {
    const bool skipped = group.needs_simulation && !device.is_simulated();
    GroupReport result{group.name, group.title, group.settings, skipped, {}};
    if (skipped)
        return result;
    device.configure(std::string("reg_delay_us=0,dereg_delay_us=0,") + group.settings);
    group.run(Bench(device, progress, report.rounds, report.quick, result));
    return result;
}

Report run_groups(const Options &options) {
    const Device device(options.device);
    const unsigned usual_rounds = options.quick ? quick_rounds : full_rounds;
    Report report{amr_version(),
                  device.name(),
                  device.is_simulated(),
                  options.quick,
                  options.rounds != 0 ? options.rounds : usual_rounds,
                  describe_machine(),
                  {}};
    const Progress progress;
    for (const Group &group : groups) {
        if (is_wanted(options, group))
            report.groups.push_back(run_group(group, device, progress, report));
    }
    return report;
}

void write_json(const std::string &path, const Report &report) {
    std::ofstream file(path);
    print_json(file, report);
    if (!file.flush())
        throw std::runtime_error("cannot write " + path);
}

int run(int argc, char **argv) {
    const Options options = parse_options(argc, argv);
    configure_default_engine();
    const Report report = run_groups(options);
    print_table(std::cout, report);
    if (!options.json.empty())
        write_json(options.json, report);
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
