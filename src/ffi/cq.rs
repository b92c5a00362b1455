//! Completion queues.

use super::guard;
use crate::cq::CqHandle;
use crate::host::EngineHandle;
use crate::verbs::ibv_mr;
use libc::c_int;

/// Largest capacity of a completion queue.
pub const AMR_MAX_CQ_CAPACITY: u32 = 1048576;

/// Nothing was found out beyond the status.
pub const AMR_DIAG_NONE: u32 = 0;
/// The limit on locked memory (RLIMIT_MEMLOCK); diag_arg is the length asked for.
pub const AMR_DIAG_MEMLOCK: u32 = 1;
/// Probably the device has no key left: no other limit that can be read explains
/// ENOMEM; diag_arg is max_mr.
pub const AMR_DIAG_MAX_MR: u32 = 2;
/// Longer than one region of the device can be (max_mr_size); diag_arg is max_mr_size.
pub const AMR_DIAG_MAX_MR_SIZE: u32 = 3;
/// The process has as many mappings as vm.max_map_count allows; diag_arg is that limit.
pub const AMR_DIAG_MAX_MAP_COUNT: u32 = 4;
/// The kernel cannot pin the range, and what is mapped there does not tell why (or
/// was mapped only after the failure); diag_arg is the length asked for.
pub const AMR_DIAG_RANGE: u32 = 5;
/// The device or its driver does not support this; diag_arg is the access asked for.
pub const AMR_DIAG_UNSUPPORTED: u32 = 6;
/// A part of the range is not mapped; diag_arg is the first such address.
pub const AMR_DIAG_HOLE: u32 = 7;
/// A page of the range cannot be read, or not be written and the access includes
/// writing; diag_arg is the address of the first one.
pub const AMR_DIAG_PROTECTION: u32 = 8;
/// Memory of a device, of the kernel, or of a file that the kernel does not let a
/// device write to; diag_arg is the first such address.
pub const AMR_DIAG_UNPINNABLE: u32 = 9;
/// The range has a part of a huge page of hugetlbfs, which the fork support of
/// libibverbs cannot split (ibv_fork_init(3)); diag_arg is the size of the page.
pub const AMR_DIAG_HUGEPAGE: u32 = 10;
/// No permission, and it is not the limit on locked memory; diag_arg is 0.
pub const AMR_DIAG_PERMISSION: u32 = 11;
/// The device does not answer any more; diag_arg is 0.
pub const AMR_DIAG_DEVICE_GONE: u32 = 12;

/// A work completion: what became of one request.
///
/// 64 bytes, for good.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct amr_wc {
    /// The wr_id of the request.
    pub wr_id: u64,
    /// The opcode of the request, AMR_OP_*.
    pub opcode: u32,
    /// 0 or the positive errno value of the verbs call; ECANCELED after
    /// amr_cancel(); EIO where the call failed and left no errno.
    pub status: i32,
    /// What the library found out about a failure, AMR_DIAG_*.
    pub diag: u32,
    /// Zero.
    pub reserved0: u32,
    /// AMR_OP_REG_MR: the region, which is the caller's from here on; NULL
    /// after a failure. AMR_OP_DEREG_MR: NULL; after a failure the region,
    /// which is alive and the caller's again.
    pub mr: *mut ibv_mr,
    /// Nanoseconds that the request waited, until a worker took it or it was
    /// cancelled; if it was tried again after EAGAIN or EINTR, until the last
    /// attempt.
    pub queued_ns: u64,
    /// Nanoseconds that workers were busy with it, in the last attempt.
    pub busy_ns: u64,
    /// A number that belongs to diag.
    pub diag_arg: u64,
    /// Of these: until the memory was faulted in; 0 where that was not done. The
    /// rest was the verbs call.
    pub populate_ns: u64,
}

/// Create a completion queue with a pollable file descriptor.
///
/// `capacity` completions at most (1 to AMR_MAX_CQ_CAPACITY) are unread or
/// still to come at a time: each posted request holds a place from submit until
/// it is polled, so that no completion is ever dropped. `engine` NULL: the
/// default engine.
///
/// Ends with amr_destroy_cq(), before its engine. Returns NULL and sets errno:
/// EINVAL (capacity), EMFILE or ENFILE (no file descriptor left), ENOMEM, EPERM
/// (the engine was made before fork()), ESHUTDOWN (the process is exiting),
/// EIO; with engine NULL also what amr_default_engine() gives.
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_create_cq(engine: *mut EngineHandle, capacity: u32) -> *mut CqHandle {
    guard::pointer(|| {
        // SAFETY: the caller gives NULL or a live engine.
        let engine = unsafe { EngineHandle::or_default(engine) }?;
        CqHandle::create(engine, capacity)
    })
}

/// The file descriptor of a completion queue.
///
/// Readable (POLLIN) exactly while at least one completion is unread:
/// level-triggered, with no arming step, so poll(), select(), epoll (EPOLLET
/// too, if the queue is then polled until it is empty), libuv, Asio and GLib
/// work. It is non-blocking and close-on-exec. Only wait on it: never read,
/// write or close it, nor change its flags. It lives until amr_destroy_cq().
///
/// A queue whose descriptor was never asked for and never waited on costs no
/// system call for each completion.
///
/// Returns the descriptor, or a negative errno value: -EINVAL (NULL), -EPERM
/// (the queue was made before fork()), -EIO. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_cq_fd(cq: *mut CqHandle) -> c_int {
    guard::count(|| {
        // SAFETY: the caller gives NULL or a live completion queue.
        let cq = unsafe { CqHandle::from_ptr(cq) }?;
        Ok(cq.watched_fd())
    })
}

/// Read completions, oldest first, without waiting.
///
/// Writes at most `num_entries` to `wc`. Several threads may poll: each
/// completion goes to one of them, so a thread that was woken by the file
/// descriptor may find that another has read it.
///
/// Returns how many were written, 0 if none is there, or a negative errno
/// value: -EINVAL (NULL, num_entries below 1), -EPERM (the queue was made
/// before fork()), -EIO. Any thread, a callback included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_poll_cq(
    cq: *mut CqHandle,
    num_entries: c_int,
    wc: *mut amr_wc,
) -> c_int {
    guard::count(|| {
        // SAFETY: the caller gives NULL or a live completion queue.
        let cq = unsafe { CqHandle::from_ptr(cq) }?;
        // SAFETY: the caller gives NULL or room for num_entries completions.
        let room = unsafe { guard::room(wc, num_entries) }?;
        Ok(cq.poll(room))
    })
}

/// Read completions; wait for the first if none is there.
///
/// Like amr_poll_cq(), but waits up to `timeout_ms` (-1: no limit; 0: like
/// amr_poll_cq()) until at least one can be read. A signal handler that runs
/// meanwhile does not end the wait.
///
/// Returns how many were written, 0 after the time is over, or a negative errno
/// value: -EINVAL (NULL, num_entries below 1, timeout_ms below -1), -EDEADLK
/// (called in a callback of the same engine), -ESHUTDOWN (the process is
/// exiting, and no completion will come), -EPERM (the queue was made before
/// fork()), -EIO. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_wait_cq(
    cq: *mut CqHandle,
    num_entries: c_int,
    wc: *mut amr_wc,
    timeout_ms: c_int,
) -> c_int {
    guard::count(|| {
        // SAFETY: the caller gives NULL or a live completion queue.
        let cq = unsafe { CqHandle::from_ptr(cq) }?;
        // SAFETY: the caller gives NULL or room for num_entries completions.
        let room = unsafe { guard::room(wc, num_entries) }?;
        cq.wait(room, timeout_ms)
    })
}

/// Destroy a completion queue.
///
/// Unread completions are dropped; the regions of unread successful
/// registrations are deregistered, in this call, since nobody else knows them.
///
/// Returns 0, or EBUSY (requests of this queue are queued or running: cancel or
/// drain them), EINVAL (NULL), EPERM (the queue was made before fork()), EIO.
/// On an error the queue is unharmed.
///
/// Any thread; the queue must not be used by another thread meanwhile, and its
/// file descriptor be taken out of every poll set before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_destroy_cq(cq: *mut CqHandle) -> c_int {
    guard::status(|| {
        // SAFETY: the caller gives NULL or a live queue that nobody else uses.
        unsafe { CqHandle::destroy(cq) }
    })
}
