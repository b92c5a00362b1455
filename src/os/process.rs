//! What belongs to the process: errno, limits, environment, exit and fork.

use super::lines::find_line;
use crate::errno::{Errno, Result};
use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

/// The calling thread's errno.
pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Sets the calling thread's errno.
pub fn set_errno(value: i32) {
    // SAFETY: no memory is involved.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is the thread's own and lives as long as the thread.
    unsafe { *place = value };
}

/// Size of a page in bytes.
pub fn page_size() -> u64 {
    // Asked once: sysconf() costs as much as the rest of a submit.
    static SIZE: AtomicU64 = AtomicU64::new(0);
    let known = SIZE.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: no memory is involved. _SC_PAGESIZE is always known.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    SIZE.store(size as u64, Ordering::Relaxed);
    size as u64
}

/// Bytes of memory that the machine has.
pub fn physical_memory() -> u64 {
    // SAFETY: no memory is involved.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).map_or(u64::MAX, |pages| pages * page_size())
}

/// Soft and hard `RLIMIT_MEMLOCK` in bytes; `u64::MAX` is no limit.
pub fn memlock_limits() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a struct to write to. It cannot fail for a known resource.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (limit.rlim_cur, limit.rlim_max)
}

/// Effective capabilities: `CapEff` of `/proc/self/status` (proc(5)).
pub fn capabilities() -> u64 {
    let effective = |line: &str| {
        let value = line.strip_prefix("CapEff:")?;
        u64::from_str_radix(value.trim(), 16).ok()
    };
    find_line("/proc/self/status", effective).unwrap_or(0)
}

/// Whether the process is in the initial user namespace. The kernel's capable() asks
/// there only.
pub fn is_in_initial_user_namespace() -> bool {
    /// `PROC_USER_INIT_INO` (linux/proc_ns.h).
    const INITIAL: u64 = 0xefff_fffd;
    // A kernel without namespaces has no such file.
    fs::metadata("/proc/self/ns/user").map_or(true, |namespace| namespace.ino() == INITIAL)
}

/// Shows an environment variable, which may be of any length: a copy of it could
/// fail. There is none in a set-user-ID program (`AT_SECURE`).
pub fn environment<T>(name: &CStr, read: impl FnOnce(&CStr) -> T) -> Option<T> {
    // SAFETY: no memory is involved.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    // SAFETY: the name is a string.
    let value = if secure { std::ptr::null() } else { unsafe { libc::getenv(name.as_ptr()) } };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string, which lives until the application changes the environment;
    // getenv(3) forbids that while others read it.
    Some(read(unsafe { CStr::from_ptr(value) }))
}

/// Writes to standard error, as much as it takes at once.
pub fn write_stderr(text: &[u8]) {
    // SAFETY: the bytes can be read. A failure leaves nothing to be done.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// Has `handler` called when the process exits (atexit(3)).
pub fn at_exit(handler: extern "C" fn()) -> Result<()> {
    // SAFETY: the handler is in a library that is never unloaded (-z nodelete).
    let status = unsafe { libc::atexit(handler) };
    if status == 0 { Ok(()) } else { Err(Errno(libc::ENOMEM)) }
}
