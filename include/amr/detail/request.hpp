// SPDX-License-Identifier: MIT OR Apache-2.0
// What the wr_id of a request points to.
#ifndef AMR_DETAIL_REQUEST_HPP
#define AMR_DETAIL_REQUEST_HPP

#include "../amr.h"
#include "engine.hpp"
#include "options.hpp"
#include <cstddef>
#include <cstdint>

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

} // namespace detail
} // namespace amr

#endif // AMR_DETAIL_REQUEST_HPP
