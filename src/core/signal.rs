//! How a completion queue tells that something can be read: a file descriptor for
//! those who poll, and a sleep for those who call and wait.
//!
//! A producer publishes its completion and then [raises](Signal::raise); a
//! consumer that finds the queue empty [settles](Signal::settle): it clears the
//! event, says so, and looks again. All changes of `state` are read-modify-write
//! operations: whichever comes second sees what the first did before, so either
//! the producer sets the event, or wakes the sleepers, or the consumer sees the
//! completion. Whoever sets the event looks afterwards whether there is still
//! something to read, so it does not stay set for a completion that was read in
//! between.

#![forbid(unsafe_code)]

use super::sync::atomic::{AtomicU32, Ordering};
use super::sync::{Condvar, Mutex, lock, wait};
use std::time::Duration;

/// Something that can be waited for: an eventfd in real life.
pub trait Event {
    /// Makes it readable; setting it twice is setting it once.
    fn set(&self);
    /// Makes it unreadable.
    fn clear(&self);
}

/// The event is set or about to be.
const RAISED: u32 = 1;
/// Nobody waits for the event yet, so it is left alone.
const UNWATCHED: u32 = 2;
/// Somebody sleeps.
const SLEEPERS: u32 = 4;

/// See the module.
pub struct Signal<E> {
    state: AtomicU32,
    event: E,
    sleepers: Mutex<usize>,
    woken: Condvar,
}

impl<E: Event> Signal<E> {
    /// A signal that nobody watches.
    pub fn new(event: E) -> Self {
        Self {
            state: AtomicU32::new(UNWATCHED),
            event,
            sleepers: Mutex::new(0),
            woken: Condvar::new(),
        }
    }

    /// The event to wait for; [`watch`](Self::watch) first.
    pub fn event(&self) -> &E {
        &self.event
    }

    /// From now on the event follows the queue.
    pub fn watch(&self, is_empty: impl Fn() -> bool) {
        if self.is_unwatched() {
            self.state.fetch_and(!(UNWATCHED | RAISED), Ordering::AcqRel);
            if !is_empty() {
                self.raise(is_empty);
            }
        }
    }

    /// There is something to read. Call after it was published.
    pub fn raise(&self, is_empty: impl Fn() -> bool) {
        let before = self.state.fetch_or(RAISED, Ordering::AcqRel);
        if before & SLEEPERS != 0 {
            self.wake_all();
        }
        if before & (RAISED | UNWATCHED) == 0 {
            self.event.set();
            // It may have been read before the event was set.
            self.settle(is_empty);
        }
    }

    /// Clears the event if there is nothing to read, and says whether that was
    /// so: what comes after that sets the event anew. (Who waits for edges must
    /// not be told that nothing is left while the event stays set: the next
    /// completion would make no edge.)
    pub fn settle(&self, is_empty: impl Fn() -> bool) -> bool {
        if self.is_unwatched() {
            return true;
        }
        while is_empty() {
            self.event.clear();
            self.state.fetch_and(!RAISED, Ordering::AcqRel);
            if is_empty() {
                return true;
            }
            if self.state.fetch_or(RAISED, Ordering::AcqRel) & RAISED != 0 {
                return false;
            }
            self.event.set();
        }
        false
    }

    /// Sleeps while there is nothing to read, until the time is up (`None`: no
    /// limit) or for no reason.
    pub fn sleep(&self, limit: Option<Duration>, is_empty: impl Fn() -> bool) {
        let mut sleepers = lock(&self.sleepers);
        *sleepers += 1;
        // A producer that does not see this has published what is_empty() sees;
        // one that does waits for the lock, which is free once this thread sleeps.
        self.state.fetch_or(SLEEPERS, Ordering::AcqRel);
        if is_empty() {
            sleepers = wait(&self.woken, sleepers, limit);
        }
        *sleepers -= 1;
        if *sleepers == 0 {
            self.state.fetch_and(!SLEEPERS, Ordering::AcqRel);
        }
    }

    fn wake_all(&self) {
        drop(lock(&self.sleepers));
        self.woken.notify_all();
    }

    fn is_unwatched(&self) -> bool {
        self.state.load(Ordering::Acquire) & UNWATCHED != 0
    }
}
