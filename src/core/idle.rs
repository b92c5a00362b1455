//! Workers that have nothing to do, and how a submitter wakes one.
//!
//! A worker without work first searches (counted in `searching`), then sleeps
//! (its bit in `sleeping`). A submitter puts its request into the queue, and
//! wakes a sleeper only if nobody is searching; so a burst costs no system call
//! while one worker is awake and looking. A searcher that finds work wakes the
//! next worker if there is more.
//!
//! The submitter writes the queue and then reads `searching` and `sleeping`; a
//! worker writes these and then reads the queue. The fences between make sure
//! that one of the two sees the other.

#![forbid(unsafe_code)]

use super::sync::Parker;
use super::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;
use std::time::Duration;

/// See the module.
pub struct Idle {
    searching: CachePadded<AtomicU32>,
    sleeping: CachePadded<AtomicU64>,
    parkers: Box<[Parker]>,
}

impl Idle {
    /// For `workers` threads, 64 at most.
    pub fn new(workers: usize) -> Self {
        assert!(workers <= u64::BITS as usize);
        Self {
            searching: CachePadded::new(AtomicU32::new(0)),
            sleeping: CachePadded::new(AtomicU64::new(0)),
            parkers: (0..workers).map(|_| Parker::default()).collect(),
        }
    }

    /// Wakes a worker if none is looking for work already. Call after the work
    /// was put where a searcher finds it.
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.searching.load(Ordering::Relaxed) == 0 {
            self.wake_one();
        }
    }

    /// Wakes a sleeping worker, if there is one; it begins to search.
    pub fn wake_one(&self) {
        loop {
            let sleeping = self.sleeping.load(Ordering::SeqCst);
            if sleeping == 0 {
                return;
            }
            let worker = sleeping.trailing_zeros() as usize;
            if self.rouse(worker) {
                self.parkers[worker].unpark();
                return;
            }
        }
    }

    /// Wakes all sleeping workers.
    pub fn wake_all(&self) {
        fence(Ordering::SeqCst);
        for (worker, parker) in self.parkers.iter().enumerate() {
            if self.rouse(worker) {
                parker.unpark();
            }
        }
    }

    /// The calling worker begins to search; says whether it is the only one.
    pub fn begin_search(&self) -> bool {
        self.searching.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// The calling worker has stopped searching, to work or to end. What it
    /// reads of the queue next includes what a submitter that still saw it
    /// searching has put in.
    pub fn end_search(&self) {
        self.searching.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The calling worker, which searches, sleeps until it is woken or the
    /// timeout is over, unless `has_work`; it searches again afterwards.
    pub fn sleep(&self, worker: usize, timeout: Option<Duration>, has_work: impl Fn() -> bool) {
        self.sleeping.fetch_or(bit(worker), Ordering::SeqCst);
        self.end_search();
        if has_work() && self.rouse(worker) {
            return;
        }
        while self.sleeping.load(Ordering::SeqCst) & bit(worker) != 0 {
            self.parkers[worker].park(timeout);
            if timeout.is_some() && self.rouse(worker) {
                return;
            }
        }
    }

    /// Makes a sleeper a searcher; one caller succeeds.
    fn rouse(&self, worker: usize) -> bool {
        let roused = self.sleeping.fetch_and(!bit(worker), Ordering::SeqCst) & bit(worker) != 0;
        if roused {
            self.searching.fetch_add(1, Ordering::SeqCst);
        }
        roused
    }
}

fn bit(worker: usize) -> u64 {
    1 << worker
}
