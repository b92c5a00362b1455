//! Limits on memory registration that can be read.

use crate::errno::Result;
use crate::ffi::info::amr_limits;
use crate::os;
use crate::verbs::{self, DeviceLimits, ibv_context};

/// `CAP_IPC_LOCK` (linux/capability.h).
const CAP_IPC_LOCK: u32 = 14;

/// What binds the process, and the device if one is given.
///
/// # Safety
/// `context` is NULL or an open device.
pub unsafe fn query(context: *mut ibv_context) -> Result<amr_limits> {
    let device = if context.is_null() {
        DeviceLimits::default()
    } else {
        // SAFETY: the caller gives an open device.
        unsafe { verbs::device_limits(context) }?
    };
    let (memlock_soft, memlock_hard) = os::memlock_limits();
    Ok(amr_limits {
        size: size_of::<amr_limits>(),
        memlock_soft,
        memlock_hard,
        pinned: status_bytes("VmPin:"),
        locked: status_bytes("VmLck:"),
        map_count: map_count(),
        max_map_count: max_map_count(),
        max_mr_size: device.max_mr_size,
        max_mr: device.max_mr,
        cap_ipc_lock: u32::from(may_lock_without_limit()),
        page_size: os::page_size() as u32,
    })
}

/// Whether `RLIMIT_MEMLOCK` does not bind the process.
pub fn may_lock_without_limit() -> bool {
    has_ipc_lock() && os::is_in_initial_user_namespace()
}

/// Whether the process has `CAP_IPC_LOCK`, which is of no effect in a user namespace
/// of a container.
pub fn has_ipc_lock() -> bool {
    os::capabilities() >> CAP_IPC_LOCK & 1 != 0
}

/// A size out of `/proc/self/status`, which gives kilobytes.
pub fn status_bytes(field: &str) -> u64 {
    os::find_line("/proc/self/status", |line| {
        let kilobytes = line.strip_prefix(field)?.trim().strip_suffix("kB")?;
        kilobytes.trim().parse::<u64>().ok()
    })
    .map_or(0, |kilobytes| kilobytes * 1024)
}

/// How many mappings the process has.
pub fn map_count() -> u64 {
    let mut count = 0;
    os::find_line("/proc/self/maps", |_| {
        count += 1;
        None::<()>
    });
    count
}

/// How many mappings the process may have.
pub fn max_map_count() -> u64 {
    os::find_line("/proc/sys/vm/max_map_count", |line| line.trim().parse().ok()).unwrap_or(0)
}
