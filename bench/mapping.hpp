// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory that was never touched, or of which all is there.
#ifndef AMR_BENCH_MAPPING_HPP
#define AMR_BENCH_MAPPING_HPP

#include "placement.hpp"
#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace bench {

constexpr std::size_t kibibyte = std::size_t{1} << 10;
constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::size_t gibibyte = std::size_t{1} << 30;

// As people say it: "4 KiB", "1 GiB".
std::string size_text(std::size_t bytes);

enum class Pages { small, huge };

// Anonymous memory, fresh at first, that starts where a huge page can. It consists of pages of 4
// KiB unless huge ones are asked for, whatever the machine does by default.
class Mapping {
  public:
    Mapping(std::size_t length, Pages pages);
    ~Mapping();

    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    char *data() const {
        return data_;
    }

    std::size_t length() const {
        return length_;
    }

    // Makes all of it resident, by all CPUs.
    void populate() const;

  private:
    void *start_;
    std::size_t mapped_;
    char *data_;
    std::size_t length_;
};

// Touches so much memory and gives it back. A virtual machine gets its memory from its host when it
// first touches it, and loses it again after a while: who comes next meets memory that is there.
void warm_up(std::size_t length);

// Linux faults memory in by a system call: for huge pages it is told so before.
void advise_huge_pages(char *data, std::size_t length);
void populate(char *data, std::size_t length);

// Calls work(data, length) for as many parts of a range as there are to be threads, one of which is
// the caller.
template <typename Work>
void in_parallel(unsigned threads, char *data, std::size_t length, Work work) {
    constexpr std::size_t page = 4096;
    const std::size_t part = (length / threads + page - 1) / page * page;
    std::vector<std::thread> helpers;
    for (std::size_t from = part; from < length; from += part)
        helpers.emplace_back(work, data + from, std::min(part, length - from));
    work(data, std::min(part, length));
    for (std::thread &helper : helpers)
        helper.join();
}

inline unsigned all_cpus() {
    return static_cast<unsigned>(usable_cpus().size());
}

} // namespace bench

#endif
