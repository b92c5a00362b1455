// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::error: what all calls throw, and what futures bring when a request failed.
#ifndef AMR_DETAIL_ERROR_HPP
#define AMR_DETAIL_ERROR_HPP

#include "../amr.h"
#include "config.hpp"
#include <cerrno>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace amr {

namespace detail {

class category_type final : public std::error_category {
  public:
    const char *name() const noexcept override {
        return "amr";
    }

    std::string message(int status) const override {
        return amr_status_str(status);
    }

    // So that codes compare equal to std::errc.
    std::error_condition default_error_condition(int status) const noexcept override {
        return std::error_condition(status, std::generic_category());
    }
};

// The sentence of amr_explain().
inline std::string explain(const amr_wc &wc) {
    std::vector<char> text(1024);
    const int length = amr_explain(&wc, text.data(), text.size());
    if (length < 0)
        return amr_status_str(wc.status);
    if (static_cast<std::size_t>(length) >= text.size()) {
        text.resize(static_cast<std::size_t>(length) + 1);
        amr_explain(&wc, text.data(), text.size());
    }
    return text.data();
}

} // namespace detail

// The category of statuses: errno values, with texts that say what they mean for a registration.
inline const std::error_category &category() noexcept {
    static const detail::category_type instance;
    return instance;
}

// A failure. what() is a sentence with the limit that was met, its value at that time, and the
// remedy; code() compares equal to std::errc; diagnosis() tells causes apart that have the same
// errno value.
class error : public std::system_error {
  public:
    // A call that was refused or failed.
    error(int status, const std::string &sentence)
        : std::system_error(std::error_code(status, category())), sentence_(sentence) {}

    // A request that failed.
    explicit error(const amr_wc &wc)
        : std::system_error(std::error_code(wc.status, category())), sentence_(detail::explain(wc)),
          diagnosis_(wc.diag), diagnosis_value_(wc.diag_arg) {}

    const char *what() const noexcept override {
        return sentence_.what();
    }

    // The same as what().
    const char *explanation() const noexcept {
        return what();
    }

    // AMR_DIAG_*; AMR_DIAG_NONE if nothing is known beyond code().
    std::uint32_t diagnosis() const noexcept {
        return diagnosis_;
    }

    // The number that belongs to it, as in amr_wc::diag_arg.
    std::uint64_t diagnosis_value() const noexcept {
        return diagnosis_value_;
    }

  private:
    std::runtime_error sentence_; // a string whose copies cannot fail
    std::uint32_t diagnosis_ = AMR_DIAG_NONE;
    std::uint64_t diagnosis_value_ = 0;
};

namespace detail {

// errno, or EIO where a failed call left none.
inline int reason() noexcept {
    return errno != 0 ? errno : EIO;
}

// Throws if a call answered with an errno value. `fault`: what is wrong with its arguments, where
// that is known.
inline void check(int status, const char *call, const std::string &fault) {
    if (status == 0)
        return;
    std::string sentence = std::string(call) + ": ";
    // Of a call this is not about locked memory, as it may be of a request.
    if (status == EPERM)
        sentence += "what was made before fork() belongs to the parent process; make a new one in "
                    "the child";
    else
        sentence += amr_status_str(status);
    throw error(status, sentence + fault);
}

inline void check(int status, const char *call) {
    if (status != 0)
        check(status, call, std::string());
}

// As a fault: that a number is out of its range; empty if it is not.
inline std::string out_of_range(const char *name, std::uint64_t value, std::uint64_t least,
                                std::uint64_t most) {
    if (value >= least && value <= most)
        return std::string();
    return std::string("; ") + name + " is " + std::to_string(value) + ", and can be " +
           std::to_string(least) + " to " + std::to_string(most);
}

// A failed request as what its future brings; std::bad_alloc if there is no memory to say more.
inline std::exception_ptr failure(const amr_wc &wc) noexcept {
    try {
        throw error(wc);
    } catch (...) {
        return std::current_exception();
    }
}

} // namespace detail

} // namespace amr

#endif // AMR_DETAIL_ERROR_HPP
