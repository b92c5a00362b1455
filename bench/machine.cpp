// SPDX-License-Identifier: MIT OR Apache-2.0
#include "machine.hpp"

#include "placement.hpp"
#include <cstdlib>
#include <fstream>
#include <malloc.h>
#include <stdexcept>
#include <sys/utsname.h>

namespace bench {

namespace {

// What follows the key in a file of lines like "Key: value"; empty if it is not there.
std::string read_field(const char *path, const std::string &key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (line.compare(0, key.size(), key) != 0 || colon == std::string::npos)
            continue;
        const std::size_t start = line.find_first_not_of(" \t", colon + 1);
        return start == std::string::npos ? "" : line.substr(start);
    }
    return "";
}

double read_bytes(const char *path, const std::string &key) {
    constexpr double kibibyte = 1024;
    return std::strtod(read_field(path, key).c_str(), nullptr) * kibibyte;
}

std::string kernel_release() {
    utsname name{};
    return uname(&name) == 0 ? std::string(name.sysname) + " " + name.release : "";
}

double load_average() {
    double load = 0;
    return getloadavg(&load, 1) == 1 ? load : 0;
}

} // namespace

Machine describe_machine() {
    return {read_field("/proc/cpuinfo", "model name"), kernel_release(),
            static_cast<unsigned>(usable_cpus().size()), read_bytes("/proc/meminfo", "MemTotal"),
            load_average()};
}

double available_bytes() {
    return read_bytes("/proc/meminfo", "MemAvailable");
}

double resident_bytes() {
    malloc_trim(0);
    const double bytes = read_bytes("/proc/self/smaps_rollup", "Rss");
    if (bytes == 0)
        throw std::runtime_error("cannot read Rss in /proc/self/smaps_rollup");
    return bytes;
}

} // namespace bench
