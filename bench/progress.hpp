// SPDX-License-Identifier: MIT OR Apache-2.0
// One line on the terminal that says how far the benchmarks are.
#ifndef AMR_BENCH_PROGRESS_HPP
#define AMR_BENCH_PROGRESS_HPP

#include <cstdio>
#include <string>
#include <unistd.h>

namespace bench {

// Shows nothing if standard error is not a terminal.
class Progress {
  public:
    Progress() = default;
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    ~Progress() {
        show("");
    }

    void show(const std::string &text) const {
        if (is_terminal_)
            std::fprintf(stderr, "\r\033[K%s", text.c_str());
    }

  private:
    bool is_terminal_ = isatty(STDERR_FILENO) != 0;
};

} // namespace bench

#endif
