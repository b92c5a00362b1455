// SPDX-License-Identifier: MIT OR Apache-2.0
#include "placement.hpp"

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <unistd.h>

namespace bench {

namespace {

cpu_set_t affinity() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
    return set;
}

cpu_set_t only(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
}

// A thread that has ended meanwhile needs no CPU.
void bind_all(const cpu_set_t &caller, const cpu_set_t &others) {
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/task")) {
        const pid_t thread = std::stoi(entry.path().filename());
        sched_setaffinity(thread, sizeof(cpu_set_t), thread == gettid() ? &caller : &others);
    }
}

} // namespace

std::vector<int> usable_cpus() {
    const cpu_set_t set = affinity();
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &set))
            cpus.push_back(cpu);
    }
    return cpus;
}

Placement::Placement(int caller_cpu, int others_cpu) : before_(affinity()) {
    bind_all(only(caller_cpu), only(others_cpu));
}

Placement::~Placement() {
    bind_all(before_, before_);
}

} // namespace bench
