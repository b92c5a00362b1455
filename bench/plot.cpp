// SPDX-License-Identifier: MIT OR Apache-2.0
// The panels of the report as an SVG image, two in a row, with logarithmic axes.
#include "mapping.hpp"
#include "report.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

namespace bench {

namespace {

constexpr double panel_width = 560, panel_height = 360;
constexpr double left = 70, right = 40, top = 40, bottom = 50;
constexpr double head = 50, line_height = 22, key_width = 280;
constexpr std::size_t columns = 2, key_columns = 4;

constexpr std::array<const char *, 9> colours = {"#9ecae1", "#4292c6", "#08519c",
                                                 "#08306b", "#d62728", "#ff7f0e",
                                                 "#2ca02c", "#9467bd", "#7f7f7f"};
constexpr const char *limit_colour = "#000000";

struct Range {
    double low = HUGE_VAL;
    double high = 0;

    void add(double value) {
        low = std::min(low, value);
        high = std::max(high, value);
    }

    // Where a value stands, 0 to 1.
    double place(double value) const {
        return low < high ? std::log(value / low) / std::log(high / low) : 0.5;
    }
};

struct Axes {
    Range bytes;
    Range rates;

    void add(const Curve &curve) {
        for (const Curve::Point &point : curve.points) {
            bytes.add(point.bytes);
            rates.add(point.rate);
        }
    }
};

std::vector<Panel> all_panels(const Report &report) {
    std::vector<Panel> panels;
    for (const GroupReport &group : report.groups)
        panels.insert(panels.end(), group.panels.begin(), group.panels.end());
    return panels;
}

// Rates from one power of ten to another.
Axes axes_of(const Panel &panel) {
    Axes axes;
    for (const Curve &curve : panel.curves)
        axes.add(curve);
    axes.add(panel.limit);
    axes.rates.low = std::pow(10, std::floor(std::log10(axes.rates.low)));
    axes.rates.high = std::pow(10, std::ceil(std::log10(axes.rates.high)));
    return axes;
}

std::vector<std::string> names_of(const std::vector<Panel> &panels) {
    std::vector<std::string> names;
    for (const Panel &panel : panels) {
        for (const Curve &curve : panel.curves) {
            if (std::find(names.begin(), names.end(), curve.name) == names.end())
                names.push_back(curve.name);
        }
    }
    return names;
}

class Picture {
  public:
    Picture(std::ostream &out, const std::vector<Panel> &panels)
        : out_(out), panels_(panels), names_(names_of(panels)) {}

    void print(const std::string &title) {
        const double rows = std::ceil(static_cast<double>(panels_.size()) / columns);
        const double keys_y = head + rows * panel_height;
        const double key_rows = std::ceil(static_cast<double>(names_.size() + 1) / key_columns);
        const double width = columns * panel_width;
        const double height = keys_y + (key_rows + 1) * line_height;
        out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\""
             << height << "\" font-family=\"sans-serif\" font-size=\"13\">\n"
             << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
        text(width / 2, head / 2, "middle", title);
        for (std::size_t i = 0; i < panels_.size(); i++) {
            out_ << "<g transform=\"translate(" << static_cast<double>(i % columns) * panel_width
                 << ',' << head + std::floor(i / columns) * panel_height << ")\">\n";
            print_panel(panels_[i]);
            out_ << "</g>\n";
        }
        for (std::size_t i = 0; i <= names_.size(); i++)
            print_key(i, keys_y + line_height / 2);
        out_ << "</svg>\n";
    }

  private:
    double x(double bytes) const {
        return left + axes_.bytes.place(bytes) * (panel_width - left - right);
    }

    double y(double rate) const {
        return panel_height - bottom - axes_.rates.place(rate) * (panel_height - top - bottom);
    }

    void text(double x, double y, const char *anchor, const std::string &text) const {
        out_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\">";
        for (const char c : text) // names of processors hold all kinds of characters
            out_ << (c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c));
        out_ << "</text>\n";
    }

    void line(double x1, double y1, double x2, double y2, const char *style) const {
        out_ << "<line x1=\"" << x1 << "\" y1=\"" << y1 << "\" x2=\"" << x2 << "\" y2=\"" << y2
             << "\" " << style << "/>\n";
    }

    void print_axes(const Panel &panel) const {
        const char *const grid = "stroke=\"#dddddd\"";
        for (double rate = axes_.rates.low; rate < axes_.rates.high * 1.5; rate *= 10) {
            line(left, y(rate), panel_width - right, y(rate), grid);
            std::string label = std::to_string(rate);
            label.erase(label.find_last_not_of('0') + 1);
            if (label.back() == '.')
                label.pop_back();
            text(left - 8, y(rate) + 4, "end", label);
        }
        for (const Curve::Point &point : panel.curves.front().points) {
            line(x(point.bytes), top, x(point.bytes), panel_height - bottom, grid);
            text(x(point.bytes), panel_height - bottom + 18, "middle",
                 size_text(static_cast<std::size_t>(point.bytes)));
        }
    }

    void print_curve(const Curve &curve, const char *colour, const char *style) const {
        out_ << "<polyline fill=\"none\" stroke=\"" << colour << "\" " << style << " points=\"";
        for (const Curve::Point &point : curve.points)
            out_ << x(point.bytes) << ',' << y(point.rate) << ' ';
        out_ << "\"/>\n";
    }

    void print_panel(const Panel &panel) {
        axes_ = axes_of(panel);
        print_axes(panel);
        text(panel_width / 2, top - 12, "middle", panel.title + ": GiB/s by size of a buffer");
        for (const Curve &curve : panel.curves)
            print_curve(curve, colour(curve.name), "stroke-width=\"2\"");
        print_curve(panel.limit, limit_colour, "stroke-dasharray=\"6 4\"");
    }

    // The last one is the limit's.
    void print_key(std::size_t i, double from_y) const {
        const bool is_limit = i == names_.size();
        const double x = left + static_cast<double>(i % key_columns) * (key_width - left / 4);
        const double y = from_y + std::floor(i / key_columns) * line_height;
        const std::string stroke = std::string("stroke-width=\"2\" stroke=\"") +
                                   (is_limit ? limit_colour : colour(names_[i])) +
                                   (is_limit ? "\" stroke-dasharray=\"6 4\"" : "\"");
        line(x, y, x + 30, y, stroke.c_str());
        text(x + 38, y + 4, "start", is_limit ? panels_.front().limit.name : names_[i]);
    }

    const char *colour(const std::string &name) const {
        const auto place = std::find(names_.begin(), names_.end(), name) - names_.begin();
        return colours[static_cast<std::size_t>(place) % colours.size()];
    }

    std::ostream &out_;
    const std::vector<Panel> &panels_;
    Axes axes_; // of the panel that is being drawn
    std::vector<std::string> names_;
};

} // namespace

void print_plot(std::ostream &out, const Report &report) {
    const std::vector<Panel> panels = all_panels(report);
    if (panels.empty())
        return;
    Picture(out, panels)
        .print("libamr " + report.version + " on " + report.device +
               (report.simulated ? " (simulated device), " : ", ") + report.machine.processor +
               ", " + std::to_string(report.machine.cpus) + " CPUs");
}

} // namespace bench
