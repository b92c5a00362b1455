//! Why a registration failed, from what can be read at that moment.

use crate::core::request::{Outcome, Request};
use crate::errno::Errno;
use crate::ffi::cq::{
    AMR_DIAG_DEVICE_GONE, AMR_DIAG_HOLE, AMR_DIAG_HUGEPAGE, AMR_DIAG_MAX_MAP_COUNT,
    AMR_DIAG_MAX_MR, AMR_DIAG_MAX_MR_SIZE, AMR_DIAG_MEMLOCK, AMR_DIAG_NONE, AMR_DIAG_PERMISSION,
    AMR_DIAG_PROTECTION, AMR_DIAG_RANGE, AMR_DIAG_UNPINNABLE, AMR_DIAG_UNSUPPORTED,
};
use crate::host::pointer;
use crate::mappings::{self, Obstacle};
use crate::verbs::{self, DeviceLimits, access, ibv_pd};
use crate::{limits, os};

/// A diagnosis and the number that belongs to it.
type Cause = (u32, u64);

/// The outcome of a registration that failed with `error`.
pub fn registration(request: &Request, error: Errno) -> Outcome {
    let (diag, diag_arg) = cause(request, error).unwrap_or((AMR_DIAG_NONE, 0));
    Outcome { diag, diag_arg, ..Outcome::failed(error.0) }
}

fn cause(request: &Request, Errno(errno): Errno) -> Option<Cause> {
    match errno {
        libc::EPERM | libc::ENOMEM if exceeds_memlock(request) => {
            Some((AMR_DIAG_MEMLOCK, request.length))
        }
        libc::EPERM | libc::EACCES => Some((AMR_DIAG_PERMISSION, 0)),
        libc::ENOMEM => {
            too_many_mappings().or_else(|| hole(request)).or_else(|| device_limit(request, true))
        }
        // The kernel's word for ENOMEM in madvise(2), which is libibverbs' fork support. After
        // it another attempt would succeed (rdma-core 44), without the support.
        libc::EAGAIN => too_many_mappings(),
        libc::EFAULT => obstacle(request)
            .or_else(|| without_pages(request))
            .or(Some((AMR_DIAG_RANGE, request.length))),
        libc::EINVAL => device_limit(request, false)
            .or_else(|| on_demand(request))
            .or_else(|| part_of_huge_page(request))
            // Of a device's memory, libibverbs' fork support overwrites errno.
            .or_else(|| without_pages(request))
            .or_else(|| is_uncommon(request).then(|| unsupported(request))),
        libc::EOPNOTSUPP => direct_access_file(request).or_else(|| Some(unsupported(request))),
        libc::EIO | libc::ENODEV | libc::ENXIO => {
            device_limits(request).is_none().then_some((AMR_DIAG_DEVICE_GONE, 0))
        }
        _ => None,
    }
}

/// Whether the pages of the request and those pinned already are more than
/// `RLIMIT_MEMLOCK` allows (ib_umem_get() in drivers/infiniband/core/umem.c).
pub fn exceeds_memlock(request: &Request) -> bool {
    let (soft, _) = os::memlock_limits();
    if soft == u64::MAX {
        return false;
    }
    let page = os::page_size();
    let first = request.address / page;
    let end = end(request).div_ceil(page);
    let wanted = (end - first).saturating_mul(page);
    let pinned = limits::status_bytes("VmPin:");
    !limits::may_lock_without_limit() && pinned.saturating_add(wanted) > soft
}

fn too_many_mappings() -> Option<Cause> {
    let max_map_count = limits::max_map_count();
    // Each registration may split one mapping into three.
    (limits::map_count() + 2 > max_map_count).then_some((AMR_DIAG_MAX_MAP_COUNT, max_map_count))
}

/// What the device has too little of; nothing else explains why it `lacks` something.
fn device_limit(request: &Request, lacks: bool) -> Option<Cause> {
    let device = device_limits(request)?;
    if request.length > device.max_mr_size {
        return Some((AMR_DIAG_MAX_MR_SIZE, device.max_mr_size));
    }
    lacks.then_some((AMR_DIAG_MAX_MR, device.max_mr))
}

fn obstacle(request: &Request) -> Option<Cause> {
    let writes = request.access & access::WRITES != 0;
    mappings::obstacle(request.address, end(request), writes).map(|found| match found {
        Obstacle::Hole(address) => (AMR_DIAG_HOLE, address),
        Obstacle::Protection(address) => (AMR_DIAG_PROTECTION, address),
        Obstacle::Unpinnable(address) => (AMR_DIAG_UNPINNABLE, address),
    })
}

/// Of which libibverbs' fork support says `ENOMEM` (madvise(2)), as of no other obstacle.
fn hole(request: &Request) -> Option<Cause> {
    obstacle(request).filter(|&(diag, _)| diag == AMR_DIAG_HOLE)
}

fn without_pages(request: &Request) -> Option<Cause> {
    mappings::without_pages(request.address, end(request))
        .map(|address| (AMR_DIAG_UNPINNABLE, address))
}

/// A file on persistent memory (DAX), of which the kernel says `EOPNOTSUPP`
/// (check_vma_flags() in mm/gup.c).
fn direct_access_file(request: &Request) -> Option<Cause> {
    mappings::direct_access_file(request.address, end(request))
        .map(|address| (AMR_DIAG_UNPINNABLE, address))
}

/// Drivers without on-demand paging say `EINVAL` or `EOPNOTSUPP`. Such a region is not
/// subject to fork support.
fn on_demand(request: &Request) -> Option<Cause> {
    (request.access & access::ON_DEMAND != 0).then(|| unsupported(request))
}

fn unsupported(request: &Request) -> Cause {
    (AMR_DIAG_UNSUPPORTED, u64::from(request.access))
}

/// Whether the access asks for what many devices do not have.
fn is_uncommon(request: &Request) -> bool {
    request.access & !access::COMMON != 0
}

fn part_of_huge_page(request: &Request) -> Option<Cause> {
    mappings::part_of_huge_page(request.address, end(request)).map(|size| (AMR_DIAG_HUGEPAGE, size))
}

fn end(request: &Request) -> u64 {
    request.address.saturating_add(request.length)
}

fn device_limits(request: &Request) -> Option<DeviceLimits> {
    let pd: *const ibv_pd = pointer(request.pd);
    // SAFETY: the application keeps the PD open until the completion.
    let context = unsafe { &*pd }.context;
    // SAFETY: the device of an open PD is open.
    unsafe { verbs::device_limits(context) }.ok()
}
