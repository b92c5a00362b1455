//! The CPUs that threads run on.

use crate::errno::Result;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most CPUs that a Linux kernel can have (CONFIG_NR_CPUS).
pub const MAX_CPUS: usize = 8192;
const WORDS: usize = MAX_CPUS / 64;

type Mask = [u64; WORDS];

/// A set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Mask);

impl CpuList {
    /// Reads a list like "0-3,8", as in cpuset(7); `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut mask = [0; WORDS];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().ok()?;
            let last: usize = last.trim().parse().ok()?;
            if first > last || last >= MAX_CPUS {
                return None;
            }
            for cpu in first..=last {
                mask[cpu / 64] |= 1 << (cpu % 64);
            }
        }
        Some(Self(mask))
    }

    /// Its CPUs.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..MAX_CPUS).filter(|cpu| self.0[cpu / 64] & 1 << (cpu % 64) != 0)
    }
}

/// Where the process could run when the library was loaded: what whoever started
/// it has chosen, taskset or mpirun, rather than where one of its threads is bound.
static AT_LOAD: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Remembers where the calling thread may run.
pub fn remember() {
    for (to, from) in AT_LOAD.iter().zip(affinity().unwrap_or([0; WORDS])) {
        to.store(from, Ordering::Relaxed);
    }
}

/// How many CPUs the process could run on when the library was loaded, one at
/// least.
pub fn cpus_at_load() -> usize {
    at_load().iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1)
}

/// Restricts the calling thread to these CPUs.
pub fn pin_current_thread(cpus: &CpuList) -> Result<()> {
    pin(&cpus.0)
}

/// Has the calling thread run where the process could when the library was loaded.
pub fn unbind_current_thread() {
    let mask = at_load();
    if affinity().is_ok_and(|inherited| inherited != mask) {
        // None of them may be there any more; then it stays where it is.
        let _ = pin(&mask);
    }
}

fn at_load() -> Mask {
    std::array::from_fn(|i| AT_LOAD[i].load(Ordering::Relaxed))
}

fn affinity() -> Result<Mask> {
    let mut mask = [0; WORDS];
    // SAFETY: the kernel writes size_of::<Mask>() bytes at most.
    let status = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), (&raw mut mask).cast()) };
    if status == 0 { Ok(mask) } else { Err(io::Error::last_os_error().into()) }
}

fn pin(mask: &Mask) -> Result<()> {
    // SAFETY: the kernel reads size_of::<Mask>() bytes; it knows no other bounds of
    // a cpu_set_t (sched_setaffinity(2)).
    let status =
        unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), std::ptr::from_ref(mask).cast()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}

#[cfg(test)]
mod tests {
    use super::CpuList;

    #[test]
    fn cpu_lists() {
        let cpus = |text| CpuList::parse(text).map(|list| list.iter().collect::<Vec<_>>());
        assert_eq!(cpus("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpus(" 1 , 2 - 3 "), Some(vec![1, 2, 3]));
        assert_eq!(cpus("8191"), Some(vec![8191]));
        for bad in ["", "a", "3-1", "1,", "-1", "0-", "0-99999", "1 2"] {
            assert_eq!(cpus(bad), None, "{bad:?}");
        }
    }
}
