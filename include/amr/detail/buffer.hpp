// SPDX-License-Identifier: MIT OR Apache-2.0
// amr::buffer: memory to register, made of whatever holds it.
#ifndef AMR_DETAIL_BUFFER_HPP
#define AMR_DETAIL_BUFFER_HPP

#include "access.hpp"
#include "config.hpp"
#include "error.hpp"
#include <cerrno>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace amr {

// An address and a length in bytes; owns nothing. Made of an array, or of anything that lives on
// and has data() and size(): a vector, an std::array, a string, a span. A temporary container is
// not taken, since its memory would be gone before the registration.
class buffer {
  public:
    buffer(void *addr, std::size_t length) noexcept : addr_(addr), length_(length) {}

    // To be read by the device and by peers only.
    buffer(const void *addr, std::size_t length) noexcept
        : addr_(const_cast<void *>(addr)), length_(length), is_const_(true) {}

    template <typename Element, std::size_t count>
    buffer(Element (&array)[count]) noexcept : buffer(&array[0], sizeof(array)) {
        check_element<Element>();
    }

    template <typename Container,
              typename Element =
                  typename std::remove_pointer<decltype(std::declval<Container &>().data())>::type,
              typename = decltype(std::declval<Container &>().size())>
    buffer(Container &container)
        : buffer(pointer(container.data()), container.size() * sizeof(Element)) {
        check_element<Element>();
    }

#if __cplusplus >= 202002L
    template <typename Element, std::size_t extent>
    buffer(std::span<Element, extent> span) noexcept
        : buffer(pointer(span.data()), span.size_bytes()) {
        check_element<Element>();
    }
#endif

    void *addr() const noexcept {
        return addr_;
    }

    std::size_t length() const noexcept {
        return length_;
    }

    // Throws EINVAL if that would let a device write to what is const.
    void check(access wanted) const {
        if (is_const_ && detail::writes(wanted))
            throw error(EINVAL, "memory that is const must not be registered for writing");
    }

  private:
    static void *pointer(void *data) noexcept {
        return data;
    }

    static const void *pointer(const void *data) noexcept {
        return data;
    }

    template <typename Element> static void check_element() noexcept {
        static_assert(std::is_trivially_copyable<Element>::value,
                      "a device copies bytes: register memory of trivially copyable elements");
    }

    void *addr_;
    std::size_t length_;
    bool is_const_ = false;
};

} // namespace amr

#endif // AMR_DETAIL_BUFFER_HPP
