// SPDX-License-Identifier: MIT OR Apache-2.0
// What the wr_id of a request points to.
#ifndef AMR_DETAIL_REQUEST_HPP
#define AMR_DETAIL_REQUEST_HPP

#include "../amr.h"
#include "engine.hpp"
#include "error.hpp"
#include "options.hpp"
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

namespace amr {
namespace detail {

// Keeps itself alive from the post until complete() is called, which is once.
class request {
  public:
    virtual void complete(const amr_wc &wc) noexcept = 0;

  protected:
    request() = default;
    request(const request &) = delete;
    request &operator=(const request &) = delete;
    ~request() = default;
};

inline request &request_of(std::uint64_t wr_id) noexcept {
    return *reinterpret_cast<request *>(static_cast<std::uintptr_t>(wr_id));
}

inline void complete_request(const amr_wc &wc) noexcept {
    request_of(wc.wr_id).complete(wc);
}

// The amr_wc_callback of all requests. Nothing is thrown across it.
inline void on_complete(const amr_wc *wc) noexcept {
    complete_request(*wc);
}

inline std::uint64_t wr_id(request &self) noexcept {
    return reinterpret_cast<std::uintptr_t>(&self);
}

inline amr_wr registration(std::uint64_t id, ibv_pd *pd, void *addr, std::size_t length,
                           const options &how) noexcept {
    amr_wr wr = {};
    wr.wr_id = id;
    wr.opcode = AMR_OP_REG_MR;
    wr.flags = how.flags;
    wr.op.reg_mr.pd = pd;
    wr.op.reg_mr.addr = addr;
    wr.op.reg_mr.length = length;
    wr.op.reg_mr.access = static_cast<unsigned>(how.rights);
    return wr;
}

inline amr_wr deregistration(std::uint64_t id, ibv_mr *mr) noexcept {
    amr_wr wr = {};
    wr.wr_id = id;
    wr.opcode = AMR_OP_DEREG_MR;
    wr.op.dereg_mr.mr = mr;
    return wr;
}

// As a fault of check(): what is wrong with a request that was refused; empty if it is not known.
inline std::string fault_of(const amr_wr &wr, int status) {
    if (status != EINVAL || wr.opcode != AMR_OP_REG_MR)
        return std::string();
    const amr_reg_mr &asked = wr.op.reg_mr;
    const auto rights = static_cast<access>(asked.access);
    const auto addr = reinterpret_cast<std::uintptr_t>(asked.addr);
    const access remote = access::remote_write | access::remote_atomic;
    if (asked.length == 0)
        return "; the length is 0";
    if ((rights & remote) != access::local_read && !includes(rights, access::local_write))
        return "; remote_write and remote_atomic need local_write";
    if (addr == 0 && !(asked.length == SIZE_MAX && includes(rights, access::on_demand)))
        return "; the address is null";
    if (addr > SIZE_MAX - asked.length)
        return "; the range goes beyond the end of the address space";
    return std::string();
}

// That a request was refused, as what its future brings.
inline std::exception_ptr refusal(int status, const char *call, const amr_wr &wr) noexcept {
    try {
        check(status, call, fault_of(wr, status));
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

} // namespace detail
} // namespace amr

#endif // AMR_DETAIL_REQUEST_HPP
