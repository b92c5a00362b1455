//! Knowing what happened.

use super::cq::amr_wc;
use super::guard;
use crate::extensible::Extensible;
use crate::host::EngineHandle;
use crate::verbs::ibv_context;
use crate::{explain, host, limits};
use libc::{c_char, c_int, size_t};

/// Limits on memory registration. Set `size` to sizeof(struct amr_limits).
///
/// Sizes are in bytes; UINT64_MAX means no limit.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct amr_limits {
    /// sizeof(struct amr_limits) of the caller.
    pub size: size_t,
    /// RLIMIT_MEMLOCK, the soft limit, which counts (getrlimit(2)).
    pub memlock_soft: u64,
    /// RLIMIT_MEMLOCK, the hard limit, up to which the process may raise it.
    pub memlock_hard: u64,
    /// Memory that is pinned by registrations now: VmPin of /proc/self/status,
    /// where each region counts its pages once, for each device.
    pub pinned: u64,
    /// Memory locked by mlock(2) now: VmLck of /proc/self/status.
    pub locked: u64,
    /// Mappings that the process has: lines of /proc/self/maps.
    pub map_count: u64,
    /// vm.max_map_count: mappings that it may have.
    pub max_map_count: u64,
    /// max_mr_size of the device; 0 if no device was given.
    pub max_mr_size: u64,
    /// max_mr of the device; 0 if no device was given.
    pub max_mr: u64,
    /// 1 if the process has CAP_IPC_LOCK in the initial user namespace, so that
    /// RLIMIT_MEMLOCK does not bind it.
    pub cap_ipc_lock: u32,
    /// Size of a page.
    pub page_size: u32,
}

/// What an engine has done and is doing. Set `size` to sizeof(struct amr_stats).
///
/// submitted = completed + queued + running while the engine is at rest (while
/// it works, the numbers are read one after another).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct amr_stats {
    /// sizeof(struct amr_stats) of the caller.
    pub size: size_t,
    /// Requests taken.
    pub submitted: u64,
    /// Requests completed, with whatever status.
    pub completed: u64,
    /// Of these: with a status that is neither 0 nor ECANCELED.
    pub failed: u64,
    /// Of these: with ECANCELED.
    pub cancelled: u64,
    /// Requests waiting for a worker now, those between two attempts included.
    pub queued: u64,
    /// Requests that a worker is busy with now.
    pub running: u64,
    /// Bytes registered by this engine, less those deregistered by it; wraps
    /// below zero if it deregisters more than it registered.
    pub registered_bytes: u64,
    /// Sum of the queued_ns of all completed requests.
    pub queue_ns_total: u64,
    /// The longest of them.
    pub queue_ns_max: u64,
    /// Sum of the busy_ns of all completed requests; the time of a callback
    /// is a part of its request's.
    pub busy_ns_total: u64,
    /// The longest of them.
    pub busy_ns_max: u64,
    /// Worker threads.
    pub workers: u32,
    /// Requests that can wait for a worker, of each of the four kinds: small or
    /// large (2 MiB and more), urgent or not.
    pub queue_depth: u32,
    /// Sum of the populate_ns of all completed requests, which are a part of
    /// their busy_ns.
    pub populate_ns_total: u64,
    /// The longest of them.
    pub populate_ns_max: u64,
}

/// A short text for a status: 0 or an errno value.
///
/// Says what the value means for a memory registration. The string is static.
/// Never fails; an unknown value gives "unknown error". Any thread, also in a
/// forked child.
#[unsafe(no_mangle)]
pub extern "C" fn amr_status_str(status: c_int) -> *const c_char {
    explain::status_text(status).as_ptr()
}

/// Explain a completion: one sentence and its remedy.
///
/// Writes at most `size` bytes to `buf`, always ended by a zero (if size is not
/// 0), in English. Names the limit that was met, with its value at the time of
/// this call, and how to raise it. A callback, which gets no completion, can
/// fill one with zeros, its opcode and its status.
///
/// Returns the length of the whole text without the zero, like snprintf(3),
/// or a negative errno value: -EINVAL (NULL wc, or NULL buf with size above 0),
/// -EIO. Any thread, also in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_explain(wc: *const amr_wc, buf: *mut c_char, size: size_t) -> c_int {
    guard::count(|| {
        // SAFETY: the caller gives NULL or a completion.
        let wc = unsafe { guard::reference(wc) }?;
        // SAFETY: the caller gives NULL or room for `size` bytes.
        unsafe { guard::write_string(explain::completion(wc).as_str(), buf, size) }
    })
}

/// Read the limits on memory registration.
///
/// `context` NULL: only those of the process. Fields that cannot be read are 0.
/// Of a larger struct than this library knows the tail is set to zero.
///
/// Returns 0, EINVAL (NULL limits; limits->size 0 or no multiple of
/// sizeof(size_t)), E2BIG (limits->size above 4096: it was not set), EIO, or the
/// errno value of ibv_query_device(). Takes tens of microseconds and more in a
/// process with many mappings. Any thread, also in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_query_limits(
    context: *mut ibv_context,
    limits: *mut amr_limits,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller gives NULL or a live context.
        let current = unsafe { limits::query(context) }?;
        // SAFETY: the caller gives NULL or a struct of the size that it says.
        unsafe { Extensible::write(current, limits) }
    })
}

/// Read what an engine has done and is doing.
///
/// `engine` NULL: the default engine. Of a larger struct than this library
/// knows the tail is set to zero.
///
/// Returns 0, EINVAL (NULL stats; stats->size 0 or no multiple of
/// sizeof(size_t)), E2BIG (stats->size above 4096: it was not set), EPERM (the
/// engine was made before fork()), EIO; with engine NULL also what
/// amr_default_engine() gives. Looks through the engine's queue. Any thread, a
/// callback included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_query_stats(
    engine: *mut EngineHandle,
    stats: *mut amr_stats,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller gives NULL or a live engine.
        let engine = unsafe { EngineHandle::or_default(engine) }?;
        // SAFETY: the caller gives NULL or a struct of the size that it says.
        unsafe { Extensible::write(host::stats(engine), stats) }
    })
}
