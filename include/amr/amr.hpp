// SPDX-License-Identifier: MIT OR Apache-2.0
//
// libamr for C++11 and later: asynchronous RDMA memory registration with RAII, futures and, from
// C++20 on, coroutines. Header-only, over the C ABI of amr.h; docs/cpp.md is its reference.
//
//     amr::RDMAContext context("mlx5_0");
//     amr::AsyncMRManager manager(context, 2);
//     auto future = manager.register_memory(buffer, amr::access::local_write);
//     ...                                       // the thread goes on
//     std::shared_ptr<amr::MemoryRegion> region = future.get();
//
// Objects share ownership of what they stand on: they may be destroyed in any order.
#ifndef AMR_HPP
#define AMR_HPP

#include "detail/access.hpp"
#include "detail/buffer.hpp"
#include "detail/context.hpp"
#include "detail/coroutine.hpp"
#include "detail/engine.hpp"
#include "detail/error.hpp"
#include "detail/failure.hpp"
#include "detail/manager.hpp"
#include "detail/options.hpp"
#include "detail/queue.hpp"
#include "detail/region.hpp"

#endif // AMR_HPP
