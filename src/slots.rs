//! The slots of the core's rings, in memory that is zero because the operating
//! system gave it so: it takes no room before it is used.

use crate::core::sync::atomic::AtomicU64;
use std::collections::TryReserveError;

/// One slot; all zero at first.
#[repr(C)]
pub struct Slot<const W: usize> {
    /// What the slot is, for the ring.
    pub state: AtomicU64,
    /// The record.
    pub words: [AtomicU64; W],
}

/// There is no memory left.
#[derive(Debug)]
pub struct OutOfMemory;

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

#[cfg(not(any(loom, miri)))]
pub use mapped::Slots;

/// A mapping of its own, since an allocator may give memory that was used before,
/// and then has to clear it all.
#[cfg(not(any(loom, miri)))]
mod mapped {
    use super::{OutOfMemory, Slot};
    use std::marker::PhantomData;
    use std::ops::Deref;
    use std::ptr::NonNull;

    /// The slots of a ring.
    pub struct Slots<const W: usize> {
        start: NonNull<Slot<W>>,
        count: usize,
        owns: PhantomData<Slot<W>>,
    }

    // SAFETY: it owns its slots as a box would, and they are atomics.
    unsafe impl<const W: usize> Send for Slots<W> {}
    // SAFETY: the same.
    unsafe impl<const W: usize> Sync for Slots<W> {}

    impl<const W: usize> Slots<W> {
        /// So many, one at least.
        pub fn new(count: usize) -> Result<Self, OutOfMemory> {
            let length = count.checked_mul(size_of::<Slot<W>>()).ok_or(OutOfMemory)?;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping.
            let start =
                unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
            if start == libc::MAP_FAILED {
                return Err(OutOfMemory);
            }
            let start = NonNull::new(start.cast()).ok_or(OutOfMemory)?;
            Ok(Self { start, count, owns: PhantomData })
        }
    }

    impl<const W: usize> Deref for Slots<W> {
        type Target = [Slot<W>];

        fn deref(&self) -> &Self::Target {
            // SAFETY: the mapping is as long as these slots, aligned to a page, and
            // lives as long as this. All zero is a slot: an AtomicU64 has the
            // representation of a u64.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
        }
    }

    impl<const W: usize> Drop for Slots<W> {
        fn drop(&mut self) {
            // SAFETY: the mapping from new(), to which nobody refers any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * size_of::<Slot<W>>()) };
        }
    }
}

/// For loom, whose atomics are more than their words, and for Miri.
#[cfg(any(loom, miri))]
pub struct Slots<const W: usize>(Box<[Slot<W>]>);

#[cfg(any(loom, miri))]
impl<const W: usize> Slots<W> {
    /// So many.
    pub fn new(count: usize) -> Result<Self, OutOfMemory> {
        let words = || std::array::from_fn(|_| AtomicU64::new(0));
        let slot = || Slot { state: AtomicU64::new(0), words: words() };
        Ok(Self((0..count).map(|_| slot()).collect()))
    }
}

#[cfg(any(loom, miri))]
impl<const W: usize> std::ops::Deref for Slots<W> {
    type Target = [Slot<W>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
