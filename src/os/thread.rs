//! Worker threads, their signals and their CPUs.

use crate::errno::{Errno, Result};
use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Room for the callbacks of applications, which run on workers; pages that are
/// not used are not allocated.
const STACK_SIZE: usize = 256 * 1024;

/// Most CPUs that a Linux kernel can have (CONFIG_NR_CPUS).
const MAX_CPUS: usize = 8192;

/// A set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Reads a list like "0-3,8", as in cpuset(7); `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().ok()?;
            let last: usize = last.trim().parse().ok()?;
            if first > last || last >= MAX_CPUS {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(Self(cpus))
    }

    /// Its CPUs.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }
}

/// Restricts the calling thread to these CPUs.
pub fn pin_current_thread(cpus: &CpuList) -> Result<()> {
    const BITS: usize = u64::BITS as usize;
    let mut mask = [0_u64; MAX_CPUS / BITS];
    for cpu in &cpus.0 {
        mask[cpu / BITS] |= 1 << (cpu % BITS);
    }
    // SAFETY: the kernel reads size_of_val(&mask) bytes; it knows no other
    // bounds of a cpu_set_t (sched_setaffinity(2)).
    let status =
        unsafe { libc::sched_setaffinity(0, size_of_val(&mask), (&raw const mask).cast()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}

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

#[cfg(test)]
mod tests {
    use super::CpuList;

    #[test]
    fn cpu_lists() {
        assert_eq!(CpuList::parse("0-3,8"), Some(CpuList(vec![0, 1, 2, 3, 8])));
        assert_eq!(CpuList::parse(" 1 , 2 - 3 "), Some(CpuList(vec![1, 2, 3])));
        for bad in ["", "a", "3-1", "1,", "-1", "0-", "0-99999", "1 2"] {
            assert_eq!(CpuList::parse(bad), None, "{bad:?}");
        }
    }
}
