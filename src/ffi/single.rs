//! One call: registration and deregistration on the default engine.

use super::guard::{self, required};
use crate::host::Callback;
use crate::intake;
use crate::verbs::{ibv_mr, ibv_pd};
use crate::{default_engine, host};
use libc::{c_int, c_void, size_t};

/// Called once when a request is over.
///
/// `mr` is the registered region; NULL when a registration failed or a
/// deregistration succeeded; the region, still alive and the caller's, when a
/// deregistration failed. `status` is 0 or a positive errno value. `ctx` is what
/// was given at submit.
///
/// Runs on a worker thread of the engine with all signals blocked, no lock of
/// the library held, and never inside the submitting call. It may call anything
/// of libamr but what would wait for itself: amr_destroy_engine(), amr_drain()
/// and amr_wait_cq() on its own engine answer EDEADLK. It must not throw,
/// longjmp() or end its thread. A worker that is in a callback serves no other
/// request. A worker's stack has 256 KiB. A callback may fork(); if it returns in
/// the child, that thread ends there, and with it the child if it has no other:
/// one that has used libamr ends by _exit() or exit() only.
pub type amr_callback =
    Option<unsafe extern "C" fn(mr: *mut ibv_mr, status: c_int, ctx: *mut c_void)>;

/// Register memory on the default engine; `callback` gets the region.
///
/// Returns at once; a worker thread performs ibv_reg_mr(pd, addr, length,
/// flags). `flags` are IBV_ACCESS_* bits and reach the device as they are.
///
/// The buffer must stay mapped and the PD open until the callback is called;
/// the region then belongs to the caller, who deregisters it with
/// amr_deregister_async() or ibv_dereg_mr(). amr_drain() waits until the
/// callbacks of a PD have returned.
///
/// Returns 0, and the callback will be called exactly once; or an errno value,
/// and nothing has happened: EINVAL (NULL pd or callback; length 0; addr NULL,
/// but for the implicit on-demand form NULL with SIZE_MAX and
/// IBV_ACCESS_ON_DEMAND; addr + length overflows; IBV_ACCESS_REMOTE_WRITE or
/// IBV_ACCESS_REMOTE_ATOMIC without IBV_ACCESS_LOCAL_WRITE), EAGAIN (the queue
/// is full: try again; or a thread of the default engine could not be made),
/// ENOMEM, ESHUTDOWN (the process is exiting), EIO (a fault inside the library).
///
/// Any thread, a callback included; not a signal handler. In a forked child
/// the default engine starts anew.
#[unsafe(no_mangle)]
pub extern "C" fn amr_register_async(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    flags: c_int,
    callback: amr_callback,
    ctx: *mut c_void,
) -> c_int {
    guard::submit(|| {
        let callback = Callback::new(required(callback)?, ctx);
        let request = intake::register(pd, addr, length, None, flags as u32, 0)?;
        host::submit_callback(default_engine::get()?, request, callback)
    })
}

/// Deregister a region on the default engine; `callback` hears how it went.
///
/// Returns at once; a worker thread performs ibv_dereg_mr(mr). The region
/// belongs to the library until the callback is called. After a success it is
/// gone (`mr` is NULL in the callback); after a failure it is alive and the
/// caller's again.
///
/// The region may come from any registration, also a plain ibv_reg_mr().
///
/// Returns 0, and the callback will be called exactly once; or an errno value,
/// and nothing has happened: EINVAL (NULL or misaligned mr, NULL callback),
/// EALREADY (a deregistration of this region is queued or running, on whichever
/// engine), EAGAIN, ENOMEM, ESHUTDOWN and EIO as for amr_register_async().
///
/// Any thread, a callback included; not a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_deregister_async(
    mr: *mut ibv_mr,
    callback: amr_callback,
    ctx: *mut c_void,
) -> c_int {
    guard::submit(|| {
        let callback = Callback::new(required(callback)?, ctx);
        // SAFETY: the caller gives NULL or a live region.
        let request = unsafe { intake::deregister(mr, 0) }?;
        host::submit_callback(default_engine::get()?, request, callback)
    })
}
