//! The memory that is registered: a few MiB that can be used, and then nothing for a
//! long way, so that long requests reach nobody else's.

use std::ptr;

const USABLE: usize = 4 << 20;
const LENGTH: usize = 128 << 20;

pub struct Memory(usize);

impl Memory {
    pub fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), LENGTH, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the beginning of the mapping.
        assert_eq!(unsafe { libc::mprotect(start, USABLE, protection) }, 0);
        Self(start.expose_provenance())
    }

    pub fn start(&self) -> usize {
        self.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping from new(), which is no region any more.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.0), LENGTH) };
    }
}
