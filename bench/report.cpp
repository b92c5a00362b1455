// SPDX-License-Identifier: MIT OR Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <sstream>

namespace bench {

namespace {

constexpr int what_width = 42;
constexpr int name_width = 26;
constexpr int number_width = 9;
constexpr int limit_width = 9;

// Three significant digits, and all digits before the point.
std::string number(double value) {
    const double size = std::abs(value);
    const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
    std::ostringstream text;
    text << std::fixed << std::setprecision(decimals) << value;
    return text.str();
}

void print_contestant(std::ostream &out, const std::string &what, const Contestant &contestant) {
    const Series &series = contestant.series;
    out << "  " << std::left << std::setw(what_width) << what << std::setw(name_width)
        << contestant.name << std::right;
    for (const double value : {series.min(), series.median(), series.max()})
        out << std::setw(number_width) << number(value);
}

std::string verdict(const Row &row) {
    if (!row.limit)
        return "";
    return row.is_missed() ? "MISSED" : "pass";
}

std::string limit_text(const Row &row) {
    if (!row.limit)
        return "-";
    const bool at_most = row.limit->bound == Limit::Bound::at_most;
    return (at_most ? "<= " : ">= ") + number(row.limit->value);
}

void print_row(std::ostream &out, const Row &row) {
    print_contestant(out, row.what + ", " + row.unit, row.subject);
    out << std::setw(number_width) << number(row.measured()) << "  " << std::left
        << std::setw(limit_width) << limit_text(row) << verdict(row) << '\n';
    if (row.reference) {
        print_contestant(out, "", *row.reference);
        out << '\n';
    }
}

void print_heading(std::ostream &out, const Report &report) {
    out << "libamr " << report.version << " on " << report.device
        << (report.simulated ? " (simulated device)" : " (no limits: not the simulated device)")
        << (report.quick ? ", quick: limits with room" : "") << '\n'
        << report.machine.cpus << " CPUs (" << report.machine.processor << "), "
        << report.machine.kernel << ", load average " << number(report.machine.load) << "\n\n"
        << "  " << std::left << std::setw(what_width) << "" << std::setw(name_width) << ""
        << std::right;
    for (const char *column : {"min", "median", "max", "measured"})
        out << std::setw(number_width) << column;
    out << "  limit\n";
}

} // namespace

double Row::measured() const {
    const double median = subject.series.median();
    return reference ? median / reference->series.median() : median;
}

bool Row::is_missed() const {
    return limit && !limit->is_kept_by(measured());
}

bool Report::any_missed() const {
    return std::any_of(groups.begin(), groups.end(), [](const GroupReport &group) {
        return std::any_of(group.rows.begin(), group.rows.end(),
                           [](const Row &row) { return row.is_missed(); });
    });
}

bool Report::any_skipped() const {
    return std::any_of(groups.begin(), groups.end(),
                       [](const GroupReport &group) { return !group.skipped.empty(); });
}

void print_table(std::ostream &out, const Report &report) {
    print_heading(out, report);
    for (const GroupReport &group : report.groups) {
        out << group.name << ": " << group.title << ", " << group.rounds << " rounds\n";
        if (!group.skipped.empty())
            out << "  skipped: " << group.skipped << '\n';
        for (const Row &row : group.rows)
            print_row(out, row);
    }
}

} // namespace bench
