// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::access: the IBV_ACCESS_* bits as a type of their own.
#ifndef AMR_DETAIL_ACCESS_HPP
#define AMR_DETAIL_ACCESS_HPP

#include <infiniband/verbs.h>

namespace amr {

// A set of rights: combine them by |. They reach the device as they are. What has no name here is
// converted in so many words: amr::access(IBV_ACCESS_...).
enum class access : unsigned {
    local_read = 0, // always there
    local_write = IBV_ACCESS_LOCAL_WRITE,
    remote_write = IBV_ACCESS_REMOTE_WRITE,   // needs local_write
    remote_read = IBV_ACCESS_REMOTE_READ,     //
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC, // needs local_write
    mw_bind = IBV_ACCESS_MW_BIND,
    on_demand = IBV_ACCESS_ON_DEMAND,
    hugetlb = IBV_ACCESS_HUGETLB,
    relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING
};

constexpr access operator|(access a, access b) noexcept {
    return static_cast<access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

constexpr access operator&(access a, access b) noexcept {
    return static_cast<access>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}

inline access &operator|=(access &a, access b) noexcept {
    return a = a | b;
}

// Whether `set` has all of `wanted`.
constexpr bool includes(access set, access wanted) noexcept {
    return (set & wanted) == wanted;
}

namespace detail {

// The device may write to the memory.
constexpr bool writes(access set) noexcept {
    return (set & (access::local_write | access::remote_write | access::remote_atomic |
                   access::mw_bind)) != access::local_read;
}

} // namespace detail

} // namespace amr

#endif // AMR_DETAIL_ACCESS_HPP
