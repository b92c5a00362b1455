// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::hint and amr::options: how a registration is to be done.
#ifndef AMR_DETAIL_OPTIONS_HPP
#define AMR_DETAIL_OPTIONS_HPP

#include "../amr.h"
#include "access.hpp"
#include <cstdint>

namespace amr {

// The AMR_WR_* flags of a registration: they change when and how fast it comes, not what comes.
enum class hint : std::uint32_t {
    huge_pages = AMR_WR_HUGEPAGE,     // advise huge pages; they stay with the memory
    no_prefault = AMR_WR_NO_PREFAULT, // leave absent pages to the device's call
    urgent = AMR_WR_URGENT            // before those that are not
};

// The rights of a registration, and hints if there are any, combined by | in any order:
// amr::access::local_write | amr::hint::urgent. Hints alone are not enough.
struct options {
    // Rights alone are options, too.
    constexpr options(access wanted) noexcept : rights(wanted) {}
    constexpr options(access wanted, std::uint32_t wr_flags) noexcept
        : rights(wanted), flags(wr_flags) {}

    access rights;
    std::uint32_t flags = 0; // AMR_WR_*
};

constexpr hint operator|(hint one, hint another) noexcept {
    return static_cast<hint>(static_cast<std::uint32_t>(one) | static_cast<std::uint32_t>(another));
}

constexpr options operator|(const options &some, hint more) noexcept {
    return options(some.rights, some.flags | static_cast<std::uint32_t>(more));
}

constexpr options operator|(const options &some, access more) noexcept {
    return options(some.rights | more, some.flags);
}

constexpr options operator|(hint hints, access rights) noexcept {
    return options(rights) | hints;
}

} // namespace amr

#endif // AMR_DETAIL_OPTIONS_HPP
