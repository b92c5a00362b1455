//! Errors as the C side knows them.

#![forbid(unsafe_code)]

use crate::explain::status_text;
use crate::slots::OutOfMemory;
use std::collections::TryReserveError;
use std::fmt;
use std::io;

/// A positive errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What most of the library returns.
pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    /// Invalid argument.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// Try again.
    pub const EAGAIN: Self = Self(libc::EAGAIN);
    /// In use.
    pub const EBUSY: Self = Self(libc::EBUSY);
    /// Input/output error; of this library: a fault inside it.
    pub const EIO: Self = Self(libc::EIO);
    /// Not permitted; of this library: a handle made before `fork()`.
    pub const EPERM: Self = Self(libc::EPERM);
    /// Would wait for itself.
    pub const EDEADLK: Self = Self(libc::EDEADLK);
    /// Shut down.
    pub const ESHUTDOWN: Self = Self(libc::ESHUTDOWN);
    /// The time is over.
    pub const ETIMEDOUT: Self = Self(libc::ETIMEDOUT);
    /// Larger than is understood.
    pub const E2BIG: Self = Self(libc::E2BIG);
    /// No such request.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// Running already.
    pub const EALREADY: Self = Self(libc::EALREADY);
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or(Self::EIO, Self)
    }
}

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Self {
        Self(libc::ENOMEM)
    }
}

impl From<TryReserveError> for Errno {
    fn from(_: TryReserveError) -> Self {
        Self(libc::ENOMEM)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The standard library's text would take memory.
        write!(f, "{} (errno {})", status_text(self.0).to_string_lossy(), self.0)
    }
}
