//! An eventfd as the event of a completion queue (eventfd(2)).

use crate::core::signal::Event;
use crate::errno::Result;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A non-blocking, close-on-exec eventfd.
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Makes one, not set.
    pub fn new() -> Result<Self> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor to wait on.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Event for EventFd {
    fn set(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes to read. It fails only when the counter is full,
        // and then the descriptor is readable as it shall be.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes to write. It fails only when the counter is zero
        // already (EAGAIN).
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}
