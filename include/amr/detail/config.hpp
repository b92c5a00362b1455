// SPDX-License-Identifier: MIT OR Apache-2.0
// What the version of C++ has to offer.
#ifndef AMR_DETAIL_CONFIG_HPP
#define AMR_DETAIL_CONFIG_HPP

#if __cplusplus < 201103L
#error "amr.hpp needs C++11"
#endif

#if __cplusplus >= 201703L
#define AMR_NODISCARD [[nodiscard]]
#include <string_view>
#else
#define AMR_NODISCARD
#include <string>
#endif

#if __cplusplus >= 202002L
#include <span>
#endif

// AddressSanitizer finds a use of freed memory only if that is not used again.
#if defined(__SANITIZE_ADDRESS__)
#define AMR_REUSES_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AMR_REUSES_MEMORY 0
#endif
#endif
#if !defined(AMR_REUSES_MEMORY)
#define AMR_REUSES_MEMORY 1
#endif

// Defined where co_await works; clang has it from version 17 on.
#if defined(__cpp_impl_coroutine)
#define AMR_HAS_COROUTINES 1
#endif

namespace amr {
namespace detail {

#if __cplusplus >= 201703L
using string_argument = std::string_view;
#else
using string_argument = const std::string &;
#endif

} // namespace detail
} // namespace amr

#endif // AMR_DETAIL_CONFIG_HPP
