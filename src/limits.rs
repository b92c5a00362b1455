//! Limits on memory registration that can be read.

use crate::errno::Result;
use crate::ffi::info::amr_limits;
use crate::os;
use crate::verbs::{self, DeviceLimits, ibv_context};
use std::fs::{self, File};
use std::io::Read;

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
    fs::read_to_string("/proc/self/status")
        .ok()
        .as_deref()
        .and_then(|status| status.lines().find_map(|line| line.strip_prefix(field)))
        .and_then(|value| value.trim().strip_suffix("kB"))
        .and_then(|kilobytes| kilobytes.trim().parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes * 1024)
}

/// How many mappings the process has. Asks for no memory: at the limit on
/// mappings there may be none.
pub fn map_count() -> u64 {
    let Ok(mut maps) = File::open("/proc/self/maps") else { return 0 };
    let mut buffer = [0; 8192];
    let mut count = 0;
    while let Ok(length @ 1..) = maps.read(&mut buffer) {
        count += buffer[..length].iter().filter(|&&byte| byte == b'\n').count() as u64;
    }
    count
}

/// How many mappings the process may have.
pub fn max_map_count() -> u64 {
    fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
