//! Work requests: one or many in one call.

use super::guard::{self, required};
use crate::cq::CqHandle;
use crate::ffi::cq::amr_wc;
use crate::host::{self, CompletionCallback, EngineHandle};
use crate::verbs::{ibv_mr, ibv_pd};
use libc::{c_int, c_void, size_t};

/// Register a memory region: op.reg_mr.
pub const AMR_OP_REG_MR: u32 = 1;
/// Deregister a memory region: op.dereg_mr.
pub const AMR_OP_DEREG_MR: u32 = 2;

/// The iova of a registration is given; without this flag it is the address.
pub const AMR_WR_IOVA: u32 = 1;
/// AMR_OP_REG_MR: ask for huge pages in the part of the buffer that is aligned to
/// their size, before it is faulted in: madvise(MADV_HUGEPAGE), which stays in
/// force after the registration.
pub const AMR_WR_HUGEPAGE: u32 = 2;
/// AMR_OP_REG_MR: leave it to the verbs call to fault the buffer in.
pub const AMR_WR_NO_PREFAULT: u32 = 4;
/// Before all that is not urgent: a small request before other small ones, a
/// large one before the slices of other large ones.
pub const AMR_WR_URGENT: u32 = 8;

/// AMR_OP_REG_MR: what ibv_reg_mr() takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct amr_reg_mr {
    /// The protection domain.
    pub pd: *mut ibv_pd,
    /// Start of the buffer.
    pub addr: *mut c_void,
    /// Length in bytes.
    pub length: size_t,
    /// With AMR_WR_IOVA: the address that the device will know the buffer by;
    /// its offset in the page is that of addr. Else zero.
    pub iova: u64,
    /// IBV_ACCESS_* bits; they reach the device as they are.
    pub access: u32,
    /// Zero.
    pub reserved: u32,
}

/// AMR_OP_DEREG_MR: what ibv_dereg_mr() takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct amr_dereg_mr {
    /// The region; the library's until the completion.
    pub mr: *mut ibv_mr,
}

/// The operand of a work request, chosen by its opcode.
#[repr(C)]
#[derive(Clone, Copy)]
pub union amr_op {
    /// What the opcode does not use must be zero. It stands first and is as
    /// large as the union, so that "= {0}" clears all of it in every compiler.
    pub reserved: [u64; 14],
    /// AMR_OP_REG_MR
    pub reg_mr: amr_reg_mr,
    /// AMR_OP_DEREG_MR
    pub dereg_mr: amr_dereg_mr,
}

/// A work request.
///
/// 128 bytes, for good. Set all of it to zero first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct amr_wr {
    /// Comes back in the completion; any value.
    pub wr_id: u64,
    /// AMR_OP_*
    pub opcode: u32,
    /// AMR_WR_* bits
    pub flags: u32,
    /// The operand.
    pub op: amr_op,
}

/// Post work requests: one or many in one call.
///
/// Takes the `count` requests of `wr` in order until one is refused; writes
/// how many were taken to `posted` (if it is not NULL), and returns why the
/// next one was refused. `wr` is read in the call and not kept. Each request
/// that was taken completes exactly once on `cq`; requests run on several
/// workers, so completions come in any order.
///
/// The buffer of a registration must stay mapped and its PD open until the
/// completion; the region is the caller's from then on. The region of a
/// deregistration is the library's until the completion.
///
/// Returns 0 (all were taken), or an errno value: EAGAIN (the engine's queue is
/// full, maybe of the requests of others, or all places of the completion queue
/// are taken: wait a little for completions and post the rest again), EINVAL
/// (NULL cq, or NULL or misaligned wr with count above 0, or a count that no
/// memory can hold; unknown opcode or flag; reserved bytes not zero; iova without
/// AMR_WR_IOVA; for AMR_OP_REG_MR a NULL pd, length 0, addr NULL, but for the
/// implicit on-demand form NULL with SIZE_MAX and IBV_ACCESS_ON_DEMAND,
/// addr + length overflows, IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC without
/// IBV_ACCESS_LOCAL_WRITE, an iova whose offset in the page is not that of addr;
/// for AMR_OP_DEREG_MR a NULL or misaligned mr), EALREADY (a deregistration of this
/// region is queued or running, on whichever engine), EPERM (the queue was made before fork()),
/// ESHUTDOWN (the process is exiting), EIO.
///
/// Any thread, a callback included; not a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_post(
    cq: *mut CqHandle,
    wr: *const amr_wr,
    count: size_t,
    posted: *mut size_t,
) -> c_int {
    let mut taken = 0;
    let status = guard::submit(|| {
        // SAFETY: the caller gives NULL or a live completion queue.
        let cq = unsafe { CqHandle::from_ptr(cq) }?;
        // SAFETY: the caller gives `count` work requests.
        let requests = unsafe { guard::slice_to_read(wr, count) }?;
        // SAFETY: each request names NULL or live objects, as its opcode says.
        unsafe { cq.post(requests, &mut taken) }
    });
    // SAFETY: the caller gives NULL or a size_t to write to.
    if let Some(posted) = unsafe { posted.as_mut() } {
        *posted = taken;
    }
    status
}

/// Called once when a request of amr_post_callback() is over.
///
/// `wc` is the completion, which is not there any more once this returns. Its
/// wr_id can be a pointer to whatever the application knows of the request. Its
/// busy_ns ends with this call, whose own time is counted by amr_query_stats()
/// only. As for amr_callback: runs on a worker thread of the engine with all
/// signals blocked, no lock of the library held, and never inside the
/// submitting call; must not throw, longjmp() or end its thread.
pub type amr_wc_callback = Option<unsafe extern "C" fn(wc: *const amr_wc)>;

/// Post work requests whose completions are handed to a function.
///
/// Like amr_post(), but on an engine (NULL: the default one), and instead of a
/// completion queue `callback` gets each completion, on a worker thread. There
/// is nothing to poll, nothing to destroy before the engine, and no limit but
/// that of the engine's queue. The requests cannot be cancelled one by one:
/// amr_destroy_engine() completes those that are still queued with ECANCELED.
///
/// Takes the `count` requests of `wr` in order until one is refused; writes
/// how many were taken to `posted` (if it is not NULL), and returns why the
/// next one was refused. `wr` is read in the call and not kept. The callback
/// is called exactly once for each request that was taken, maybe before this
/// returns.
///
/// The buffer of a registration must stay mapped and its PD open until the
/// callback is called; the region is the caller's from then on. The region of a
/// deregistration is the library's until the callback is called.
///
/// Returns 0 (all were taken), or an errno value: EAGAIN (the engine's queue is
/// full: post the rest again a little later, but not from a callback, where all
/// workers may come to wait for one another; with engine NULL also: a thread
/// could not be made), EINVAL (NULL callback, or NULL or misaligned wr with
/// count above 0, or a count that no memory can hold, or a request that
/// amr_post() refuses so), EALREADY (a deregistration of this region is queued or
/// running, on whichever engine), EPERM (the engine was made before fork()), ENOMEM
/// (engine NULL only), ESHUTDOWN (the process is exiting), EIO.
///
/// Any thread, a callback included; not a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_post_callback(
    engine: *mut EngineHandle,
    wr: *const amr_wr,
    count: size_t,
    callback: amr_wc_callback,
    posted: *mut size_t,
) -> c_int {
    let mut taken = 0;
    let status = guard::submit(|| {
        let callback = CompletionCallback::new(required(callback)?);
        // SAFETY: the caller gives `count` work requests.
        let requests = unsafe { guard::slice_to_read(wr, count) }?;
        // SAFETY: the caller gives NULL or a live engine.
        let engine = unsafe { EngineHandle::or_default(engine) }?;
        // SAFETY: each request names NULL or live objects, as its opcode says.
        unsafe { host::post_callback(engine, requests, callback, &mut taken) }
    });
    // SAFETY: the caller gives NULL or a size_t to write to.
    if let Some(posted) = unsafe { posted.as_mut() } {
        *posted = taken;
    }
    status
}

/// Cancel a queued request.
///
/// The oldest queued request of `cq` with this wr_id completes with ECANCELED,
/// before this returns; it holds its place in the engine's queue until a worker
/// comes by. A running request cannot be stopped and completes as it does.
///
/// Returns 0, EALREADY (it is running), ENOENT (no request with this wr_id is
/// queued or running), EINVAL (NULL), EPERM (the queue was made before fork()),
/// EIO. Looks through the engine's queue: takes microseconds for each thousand
/// requests in it. Any thread, a callback included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_cancel(cq: *mut CqHandle, wr_id: u64) -> c_int {
    guard::status(|| {
        // SAFETY: the caller gives NULL or a live completion queue.
        let cq = unsafe { CqHandle::from_ptr(cq) }?;
        cq.cancel(wr_id)
    })
}
