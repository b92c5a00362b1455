//! No call of the library is a cancellation point (pthreads(7)): to be unwound
//! in the middle would end the process, since Rust does not let that pass.

use libc::c_int;

/// `PTHREAD_CANCEL_DISABLE` of `<pthread.h>`.
const DISABLE: c_int = 1;

// SAFETY: the prototype of <pthread.h>; the libc crate does not have it for Linux.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The calling thread is not cancelled while this lives.
pub struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    /// Begins.
    pub fn new() -> Self {
        let mut before = 0;
        // SAFETY: an int to write to. It cannot fail for a known state.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: nothing is written through NULL. The state is one that was in force.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}
