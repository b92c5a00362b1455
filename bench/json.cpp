// SPDX-License-Identifier: MIT OR Apache-2.0
// The report as JSON, with the value of every round.
#include "report.hpp"

#include <cstdio>
#include <ostream>

namespace bench {

namespace {

std::string quoted(const std::string &text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            result += '\\';
        // Names of devices and processors hold no control character that means anything.
        result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return result + '"';
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", value);
    return text;
}

const char *boolean(bool value) {
    return value ? "true" : "false";
}

// Elements with commas between them.
template <typename Elements, typename Print>
void print_list(std::ostream &out, const Elements &elements, Print print) {
    const char *separator = "";
    out << '[';
    for (const auto &element : elements) {
        out << separator;
        print(element);
        separator = ",";
    }
    out << ']';
}

void print_contestant(std::ostream &out, const Contestant &contestant) {
    const Series &series = contestant.series;
    out << "{\"name\":" << quoted(contestant.name) << ",\"min\":" << number(series.min())
        << ",\"median\":" << number(series.median()) << ",\"max\":" << number(series.max())
        << ",\"rounds\":";
    print_list(out, series.values(), [&](double value) { out << number(value); });
    out << '}';
}

void print_limit(std::ostream &out, const Row &row) {
    const bool at_most = row.limit->bound == Limit::Bound::at_most;
    out << ",\"limit\":{\"bound\":" << quoted(at_most ? "at_most" : "at_least")
        << ",\"value\":" << number(row.limit->value)
        << "},\"passed\":" << boolean(!row.is_missed());
}

void print_row(std::ostream &out, const Row &row) {
    out << "\n{\"what\":" << quoted(row.what) << ",\"unit\":" << quoted(row.unit)
        << ",\"subject\":";
    print_contestant(out, row.subject);
    if (row.reference) {
        out << ",\"reference\":";
        print_contestant(out, *row.reference);
    }
    out << ",\"measured\":" << number(row.measured())
        << ",\"measured_is\":" << quoted(row.reference ? "ratio of medians" : "median");
    if (row.limit)
        print_limit(out, row);
    out << '}';
}

void print_group(std::ostream &out, const GroupReport &group) {
    out << "\n{\"name\":" << quoted(group.name) << ",\"title\":" << quoted(group.title)
        << ",\"simulated_device_settings\":" << quoted(group.settings)
        << ",\"skipped\":" << (group.skipped.empty() ? "false" : quoted(group.skipped))
        << ",\"rounds\":" << group.rounds << ",\"rows\":";
    print_list(out, group.rows, [&](const Row &row) { print_row(out, row); });
    out << '}';
}

void print_machine(std::ostream &out, const Machine &machine) {
    out << "{\"processor\":" << quoted(machine.processor) << ",\"cpus\":" << machine.cpus
        << ",\"memory_bytes\":" << number(machine.memory_bytes)
        << ",\"kernel\":" << quoted(machine.kernel) << ",\"load_average\":" << number(machine.load)
        << '}';
}

} // namespace

void print_json(std::ostream &out, const Report &report) {
    out << "{\"libamr\":" << quoted(report.version)
        << ",\"device\":{\"name\":" << quoted(report.device)
        << ",\"simulated\":" << boolean(report.simulated) << "},\"quick\":" << boolean(report.quick)
        << ",\n\"machine\":";
    print_machine(out, report.machine);
    out << ",\n\"groups\":";
    print_list(out, report.groups, [&](const GroupReport &group) { print_group(out, group); });
    out << "}\n";
}

} // namespace bench
