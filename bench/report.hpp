// SPDX-License-Identifier: MIT OR Apache-2.0
// What the benchmarks found, and whether it keeps the limits.
#ifndef AMR_BENCH_REPORT_HPP
#define AMR_BENCH_REPORT_HPP

#include "machine.hpp"
#include "stats.hpp"
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace bench {

struct Limit {
    enum class Bound { at_most, at_least };

    Bound bound;
    double value;

    bool is_kept_by(double measured) const {
        return bound == Bound::at_most ? measured <= value : measured >= value;
    }
};

struct Contestant {
    std::string name;
    Series series;
};

// One line of the table. With a reference, the ratio of the two medians is what the limit is for;
// without one it is the median.
struct Row {
    std::string what;
    std::string unit;
    Contestant subject;
    std::optional<Contestant> reference;
    std::optional<Limit> limit;

    double measured() const;
    bool is_missed() const;
};

struct Curve {
    struct Point {
        double bytes;
        double rate; // GiB each second
    };

    std::string name;
    std::vector<Point> points;
};

// A part of the plot. No curve can do better than the limit.
struct Panel {
    std::string title;
    std::vector<Curve> curves;
    Curve limit;
};

struct GroupReport {
    std::string name;
    std::string title;
    std::string settings; // of the simulated device
    std::string skipped;  // why; empty if it is not
    unsigned rounds;
    std::vector<Row> rows;
    std::vector<Panel> panels;
};

struct Report {
    std::string version; // of libamr
    std::string device;
    bool simulated;
    bool quick;
    Machine machine;
    std::vector<GroupReport> groups;

    bool any_missed() const;
    bool any_skipped() const;
};

void print_table(std::ostream &out, const Report &report);
void print_json(std::ostream &out, const Report &report);
void print_plot(std::ostream &out, const Report &report); // as SVG

} // namespace bench

#endif
