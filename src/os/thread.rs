//! Worker threads and their signals.

use crate::errno::{Errno, Result};
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Room for the callbacks of applications, which run on workers; pages that are
/// not used are not allocated.
const STACK_SIZE: usize = 256 * 1024;

/// Starts a thread that blocks all signals.
pub fn spawn_worker(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let _blocked = BlockedSignals::new();
    let spawned = Builder::new().name(name).stack_size(STACK_SIZE).spawn(body);
    spawned.map_err(|error| match error.into() {
        Errno(libc::ENOMEM) => Errno(libc::ENOMEM),
        _ => Errno::EAGAIN,
    })
}

/// All signals blocked on the calling thread, for as long as this lives: a
/// thread made meanwhile inherits that.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        // SAFETY: a set to write to.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigfillset() has filled `all`, and `before` is written to.
        // With SIG_SETMASK and valid sets it cannot fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: pthread_sigmask() has filled it.
        let before = unsafe { before.assume_init() };
        Self { before }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` is a mask that pthread_sigmask() gave.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}
