// SPDX-License-Identifier: MIT OR Apache-2.0
#include "mapping.hpp"

#include <cerrno>
#include <cstdint>
#include <sys/mman.h>
#include <system_error>

// Older C libraries do not have it.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace bench {

namespace {

constexpr std::size_t huge_page = 2 * mebibyte;

} // namespace

std::string size_text(std::size_t bytes) {
    if (bytes >= gibibyte)
        return std::to_string(bytes / gibibyte) + " GiB";
    if (bytes >= mebibyte)
        return std::to_string(bytes / mebibyte) + " MiB";
    return std::to_string(bytes / kibibyte) + " KiB";
}

Mapping::Mapping(std::size_t length, Pages pages)
    : start_(mmap(nullptr, length + huge_page, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
      mapped_(length + huge_page), length_(length) {
    if (start_ == MAP_FAILED)
        throw std::system_error(errno, std::generic_category(), "mmap");
    const auto start = reinterpret_cast<std::uintptr_t>(start_);
    data_ = reinterpret_cast<char *>((start + huge_page - 1) / huge_page * huge_page);
    if (pages == Pages::huge)
        advise_huge_pages(data_, length_);
    else // refused by kernels without huge pages, where there is no need for it
        madvise(start_, mapped_, MADV_NOHUGEPAGE);
}

Mapping::~Mapping() {
    munmap(start_, mapped_);
}

void Mapping::populate() const {
    in_parallel(all_cpus(), data_, length_, bench::populate);
}

void warm_up(std::size_t length) {
    Mapping(length, Pages::huge).populate();
}

void advise_huge_pages(char *data, std::size_t length) {
    if (madvise(data, length, MADV_HUGEPAGE) != 0)
        throw std::system_error(errno, std::generic_category(), "madvise(MADV_HUGEPAGE)");
}

void populate(char *data, std::size_t length) {
    int result = 0;
    do {
        result = madvise(data, length, MADV_POPULATE_WRITE);
    } while (result != 0 && errno == EINTR);
    if (result != 0)
        throw std::system_error(errno, std::generic_category(), "madvise(MADV_POPULATE_WRITE)");
}

} // namespace bench
