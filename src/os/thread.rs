//! Worker threads and their signals.

use crate::errno::{Errno, Result};
use libc::c_void;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Room for the callbacks of applications, which run on workers; pages that are
/// not used are not allocated.
const STACK_SIZE: usize = 256 * 1024;

/// As the kernel takes it (prctl(2), PR_SET_NAME).
const LONGEST_NAME: usize = 15;

/// A thread that was started; it goes its own way if nobody joins it.
pub struct Thread {
    id: libc::pthread_t,
}

impl Thread {
    /// Waits until it has ended.
    pub fn join(self) {
        // SAFETY: the thread was made joinable, and nobody else joins or detaches it.
        unsafe { libc::pthread_join(self.id, std::ptr::null_mut()) };
        std::mem::forget(self);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: the thread was made joinable, and nobody else joins or detaches it.
        unsafe { libc::pthread_detach(self.id) };
    }
}

/// What a thread is given: its name, and what it does.
struct Start {
    name: String,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a thread that blocks all signals.
///
/// Not one of the standard library's: where memory is short, that ends the process
/// in several ways, and so does a thread that asks it who it is (`thread::current`).
pub fn spawn_worker(name: String, body: impl FnOnce() + Send + 'static) -> Result<Thread> {
    let _blocked = BlockedSignals::new();
    let start = Box::into_raw(Box::new(Start { name, body: Box::new(body) }));
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: attributes to write to. It cannot fail in the C library.
    unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
    // SAFETY: pthread_attr_init() has filled them. The size is one that is allowed.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_SIZE) };
    let mut id = 0;
    // SAFETY: begin() takes what `start` is, once.
    let status =
        unsafe { libc::pthread_create(&raw mut id, attributes.as_ptr(), begin, start.cast()) };
    // SAFETY: they were filled above and are not used any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    if status == 0 {
        return Ok(Thread { id });
    }
    // SAFETY: no thread was made, so it is still the box from above.
    drop(unsafe { Box::from_raw(start) });
    Err(if status == libc::ENOMEM { Errno(libc::ENOMEM) } else { Errno::EAGAIN })
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: spawn_worker() made it of a box, for this thread.
    let Start { mut name, body } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    name.truncate(LONGEST_NAME);
    name.push('\0');
    // SAFETY: a short string that ends with a zero. Without a name it would work as well.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // A panic must not get into the C library; the body has caught those that matter.
    let _ = catch_unwind(AssertUnwindSafe(body));
    std::ptr::null_mut()
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
