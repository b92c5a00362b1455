//! The one module that speaks to libibverbs.
//!
//! Three calls are enough. Registration always goes through
//! `ibv_reg_mr_iova2`: `ibv_reg_mr` and `ibv_reg_mr_iova` of rdma-core 28 and
//! later only forward to it (libibverbs/verbs.c), and it is the one that masks
//! optional access bits on a kernel that does not know them.

#[cfg(not(feature = "rdma-sys"))]
mod builtin;

#[cfg(not(feature = "rdma-sys"))]
use builtin as sys;
#[cfg(feature = "rdma-sys")]
use rdma_sys as sys;

pub use sys::{ibv_context, ibv_mr, ibv_pd};

use crate::errno::{Errno, Result};
use crate::os;
use libc::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The `IBV_ACCESS_*` bits that the library looks at.
pub mod access {
    /// `IBV_ACCESS_LOCAL_WRITE`
    pub const LOCAL_WRITE: u32 = 1;
    /// `IBV_ACCESS_REMOTE_WRITE`
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// `IBV_ACCESS_REMOTE_READ`
    pub const REMOTE_READ: u32 = 1 << 2;
    /// `IBV_ACCESS_REMOTE_ATOMIC`
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
    /// `IBV_ACCESS_MW_BIND`
    pub const MW_BIND: u32 = 1 << 4;
    /// `IBV_ACCESS_ON_DEMAND`
    pub const ON_DEMAND: u32 = 1 << 6;
    /// Those that nearly all devices have.
    pub const COMMON: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;
    /// Those for which the kernel pins pages to write to them (`ib_access_writable()`
    /// in rdma/ib_verbs.h).
    pub const WRITES: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC | MW_BIND;
}

/// What a device says of its limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceLimits {
    /// Longest region in bytes.
    pub max_mr_size: u64,
    /// Highest number of regions.
    pub max_mr: u64,
}

/// Registers a region. Blocks.
///
/// # Safety
/// `pd` is a live PD. The range need not be mapped: the kernel looks at it.
pub unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<NonNull<ibv_mr>> {
    let (mr, errno) = with_errno(|| {
        // SAFETY: the caller gives a live PD; the other arguments are numbers to libibverbs.
        unsafe { sys::ibv_reg_mr_iova2(pd, addr, length, iova, access) }
    });
    NonNull::new(mr).ok_or(error(errno))
}

/// Deregisters a region. Blocks. On an error the region is still alive.
///
/// # Safety
/// `mr` is a live region that nobody else deregisters.
pub unsafe fn deregister(mr: *mut ibv_mr) -> Result<()> {
    let (status, errno) = with_errno(|| {
        // SAFETY: the caller gives a live region.
        unsafe { sys::ibv_dereg_mr(mr) }
    });
    result(status, errno)
}

/// Makes a call and says what it has set errno to, 0 if it has not: a failure must not
/// be reported with an old one. errno is then as it was, for the application, whose
/// thread this may be.
fn with_errno<T>(call: impl FnOnce() -> T) -> (T, c_int) {
    let before = os::errno();
    os::set_errno(0);
    let returned = call();
    let errno = os::errno();
    os::set_errno(before);
    (returned, errno)
}

/// What a call says that returns a status and has set errno.
fn result(status: c_int, errno: c_int) -> Result<()> {
    match status {
        0 => Ok(()),
        // Old providers return -1 and set errno.
        -1 => Err(error(errno)),
        status => Err(Errno(status.saturating_abs())),
    }
}

/// A failure, also one that left no errno: 0 would be a success.
fn error(errno: c_int) -> Errno {
    if errno == 0 { Errno::EIO } else { Errno(errno) }
}

/// Asks a device for its limits. May block for a command of the device.
///
/// # Safety
/// `context` is an open device.
pub unsafe fn device_limits(context: *mut ibv_context) -> Result<DeviceLimits> {
    let mut attr = MaybeUninit::<sys::ibv_device_attr>::zeroed();
    let (status, errno) = with_errno(|| {
        // SAFETY: an open device and a struct to write to.
        unsafe { sys::ibv_query_device(context, attr.as_mut_ptr()) }
    });
    result(status, errno)?;
    // SAFETY: all of it is numbers, zero before the call and filled by it.
    let attr = unsafe { attr.assume_init() };
    Ok(DeviceLimits {
        max_mr_size: attr.max_mr_size,
        max_mr: u64::try_from(attr.max_mr).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_that_of_the_call() {
        os::set_errno(libc::EAGAIN);
        assert_eq!(with_errno(|| 1), (1, 0));
        assert_eq!(with_errno(|| os::set_errno(libc::EBUSY)), ((), libc::EBUSY));
        assert_eq!(os::errno(), libc::EAGAIN);
    }

    /// Not as a success, and not with the error of a call long ago, which would be
    /// tried again if that was `EAGAIN`.
    #[test]
    fn failures_that_say_nothing_are_failures() {
        assert_eq!(error(0), Errno::EIO);
        assert_eq!(error(libc::ENOMEM), Errno(libc::ENOMEM));
        assert_eq!(result(-1, 0), Err(Errno::EIO));
    }

    #[test]
    fn statuses_of_old_and_new_providers() {
        assert_eq!(result(0, libc::EAGAIN), Ok(()));
        assert_eq!(result(libc::EBUSY, 0), Err(Errno::EBUSY));
        assert_eq!(result(-libc::EBUSY, libc::EAGAIN), Err(Errno::EBUSY));
        assert_eq!(result(-1, libc::EBUSY), Err(Errno::EBUSY));
        assert_eq!(result(c_int::MIN, 0), Err(Errno(c_int::MAX)));
    }
}
