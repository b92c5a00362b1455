//! Why a registration failed, from what can be read at that moment.

use crate::core::request::{Outcome, Request};
use crate::errno::Errno;
use crate::ffi::cq::{
    AMR_DIAG_MAX_MAP_COUNT, AMR_DIAG_MAX_MR, AMR_DIAG_MAX_MR_SIZE, AMR_DIAG_MEMLOCK, AMR_DIAG_NONE,
    AMR_DIAG_RANGE, AMR_DIAG_UNSUPPORTED,
};
use crate::host::pointer;
use crate::verbs::{self, DeviceLimits, ibv_pd};
use crate::{limits, os};

/// The outcome of a registration that failed with `error`.
pub fn registration(request: &Request, error: Errno) -> Outcome {
    let (diag, diag_arg) = cause(request, error);
    Outcome { diag, diag_arg, ..Outcome::failed(error.0) }
}

fn cause(request: &Request, Errno(errno): Errno) -> (u32, u64) {
    match errno {
        libc::EPERM if exceeds_memlock(request) => (AMR_DIAG_MEMLOCK, request.length),
        libc::ENOMEM if exceeds_memlock(request) => (AMR_DIAG_MEMLOCK, request.length),
        libc::ENOMEM => resource_limit(request),
        libc::EFAULT => (AMR_DIAG_RANGE, request.length),
        libc::EINVAL => too_long(request),
        libc::EOPNOTSUPP => (AMR_DIAG_UNSUPPORTED, u64::from(request.access)),
        _ => (AMR_DIAG_NONE, 0),
    }
}

/// Whether the pages of the request and those pinned already are more than
/// `RLIMIT_MEMLOCK` allows (ib_umem_get() in drivers/infiniband/core/umem.c).
fn exceeds_memlock(request: &Request) -> bool {
    let (soft, _) = os::memlock_limits();
    let page = os::page_size();
    let first = request.address / page;
    let end = request.address.saturating_add(request.length).div_ceil(page);
    let wanted = (end - first).saturating_mul(page);
    let pinned = limits::status_bytes("VmPin:");
    !limits::may_lock_without_limit() && pinned.saturating_add(wanted) > soft
}

fn resource_limit(request: &Request) -> (u32, u64) {
    let max_map_count = limits::max_map_count();
    // Each registration may split one mapping into three.
    if limits::map_count() + 2 > max_map_count {
        return (AMR_DIAG_MAX_MAP_COUNT, max_map_count);
    }
    match device_limits(request) {
        Some(device) if request.length > device.max_mr_size => {
            (AMR_DIAG_MAX_MR_SIZE, device.max_mr_size)
        }
        Some(device) => (AMR_DIAG_MAX_MR, device.max_mr),
        None => (AMR_DIAG_NONE, 0),
    }
}

fn too_long(request: &Request) -> (u32, u64) {
    match device_limits(request) {
        Some(device) if request.length > device.max_mr_size => {
            (AMR_DIAG_MAX_MR_SIZE, device.max_mr_size)
        }
        _ => (AMR_DIAG_NONE, 0),
    }
}

fn device_limits(request: &Request) -> Option<DeviceLimits> {
    let pd: *const ibv_pd = pointer(request.pd);
    // SAFETY: the application keeps the PD open until the completion.
    let context = unsafe { &*pd }.context;
    // SAFETY: the device of an open PD is open.
    unsafe { verbs::device_limits(context) }.ok()
}
