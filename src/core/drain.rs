//! Waiting until requests are over.
//!
//! Costs a worker one load for each request while nobody waits.

#![forbid(unsafe_code)]

use super::sync::atomic::{AtomicUsize, Ordering, fence};
use super::sync::{Condvar, Mutex, lock, wait};
use std::time::Duration;

/// See the module.
pub struct Drain {
    waiters: AtomicUsize,
    progress: Mutex<()>,
    changed: Condvar,
}

impl Default for Drain {
    fn default() -> Self {
        Self { waiters: AtomicUsize::new(0), progress: Mutex::new(()), changed: Condvar::new() }
    }
}

impl Drain {
    /// A request is over. Call after a full fence, which comes after the change
    /// that a waiter looks for.
    pub fn progress(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            // A waiter holds the lock from its look until it sleeps.
            drop(lock(&self.progress));
            self.changed.notify_all();
        }
    }

    /// Waits until `is_over`, or until `remaining` says that the time is up;
    /// tells which.
    pub fn wait(
        &self,
        is_over: impl Fn() -> bool,
        remaining: impl Fn() -> Option<Duration>,
    ) -> bool {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut guard = lock(&self.progress);
        let over = loop {
            if is_over() {
                break true;
            }
            let limit = remaining();
            if limit == Some(Duration::ZERO) {
                break false;
            }
            guard = wait(&self.changed, guard, limit);
        };
        drop(guard);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        over
    }
}
