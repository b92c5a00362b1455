// SPDX-License-Identifier: MIT OR Apache-2.0
// Which CPUs the threads run on, where luck would decide a comparison otherwise.
#ifndef AMR_BENCH_PLACEMENT_HPP
#define AMR_BENCH_PLACEMENT_HPP

#include <sched.h>
#include <vector>

namespace bench {

// CPUs that the calling thread may use.
std::vector<int> usable_cpus();

// While it lives, the calling thread is bound to one CPU, and all other threads that the process
// has now to another one, or to the same. Then all may use again what the calling thread could
// before.
class Placement {
  public:
    Placement(int caller_cpu, int others_cpu);
    ~Placement();

    Placement(const Placement &) = delete;
    Placement &operator=(const Placement &) = delete;

  private:
    cpu_set_t before_;
};

} // namespace bench

#endif
