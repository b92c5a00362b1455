//! How often the process image was forked: a child knows that it is one.

use crate::errno::{Errno, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between the first process of this image and this one.
pub fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on, if that is not so already.
pub fn watch_forks() -> Result<()> {
    if WATCHED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: the handler is in a library that is never unloaded (-z nodelete).
    let status = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    if status != 0 {
        return Err(Errno(status));
    }
    WATCHED.store(true, Ordering::Release);
    Ok(())
}
