//! The one module that speaks to the operating system.

mod cancel;
mod event;
mod fork;
mod process;
mod thread;

pub use cancel::Uncancelled;
pub use event::EventFd;
pub use fork::{forks, watch_forks};
pub use process::{
    at_exit, capabilities, environment, errno, memlock_limits, page_size, set_errno, write_stderr,
};
pub use thread::{CpuList, pin_current_thread, spawn_worker};

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to write to. The clock exists, so it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
