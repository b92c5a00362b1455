// SPDX-License-Identifier: MIT OR Apache-2.0
// The machine that is measured on, and what of its memory this process occupies.
#ifndef AMR_BENCH_MACHINE_HPP
#define AMR_BENCH_MACHINE_HPP

#include <string>

namespace bench {

struct Machine {
    std::string processor;
    std::string kernel;
    unsigned cpus; // that this process may use
    double memory_bytes;
    double load; // average of the last minute, at the start: others may disturb
};

Machine describe_machine();

// That can be had without making room for it.
double available_bytes();

// Exact, unlike VmRSS of newer kernels. Gives free memory of malloc back first, so that what was
// freed before does not hide what is allocated next.
double resident_bytes();

} // namespace bench

#endif
