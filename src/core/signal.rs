//! When a completion queue's file descriptor is readable.
//!
//! A producer publishes its completion and then [raises](Signal::raise); a
//! consumer that finds the queue empty [settles](Signal::settle): it clears the
//! event, says so, and looks again. Both change `state` with read-modify-write
//! operations: whichever comes second sees what the first did before, so either
//! the producer sets the event or the consumer sees the completion. Whoever sets
//! the event looks afterwards whether there is still something to read, so it
//! does not stay set for a completion that was read in between.

#![forbid(unsafe_code)]

use super::sync::atomic::{AtomicU32, Ordering};

/// Something that can be waited for: an eventfd in real life.
pub trait Event {
    /// Makes it readable; setting it twice is setting it once.
    fn set(&self);
    /// Makes it unreadable.
    fn clear(&self);
}

const QUIET: u32 = 0;
/// The event is set or about to be.
const RAISED: u32 = 1;
/// Nobody waits for the event yet, so it is left alone.
const UNWATCHED: u32 = 2;

/// See the module.
pub struct Signal<E> {
    state: AtomicU32,
    event: E,
}

impl<E: Event> Signal<E> {
    /// A signal that nobody watches.
    pub fn new(event: E) -> Self {
        Self { state: AtomicU32::new(UNWATCHED), event }
    }

    /// The event to wait for; [`watch`](Self::watch) first.
    pub fn event(&self) -> &E {
        &self.event
    }

    /// From now on the event follows the queue.
    pub fn watch(&self, is_empty: impl Fn() -> bool) {
        if self.is_unwatched() {
            self.state.swap(QUIET, Ordering::AcqRel);
            if !is_empty() {
                self.raise(is_empty);
            }
        }
    }

    /// There is something to read. Call after it was published.
    pub fn raise(&self, is_empty: impl Fn() -> bool) {
        if self.begin_raise() {
            self.event.set();
            // It may have been read before the event was set.
            self.settle(is_empty);
        }
    }

    /// Clears the event if there is nothing to read.
    pub fn settle(&self, is_empty: impl Fn() -> bool) {
        while !self.is_unwatched() && is_empty() {
            self.event.clear();
            self.state.swap(QUIET, Ordering::AcqRel);
            if is_empty() || !self.begin_raise() {
                return;
            }
            self.event.set();
        }
    }

    /// Whether it falls to the caller to set the event.
    fn begin_raise(&self) -> bool {
        self.state.fetch_or(RAISED, Ordering::AcqRel) == QUIET
    }

    fn is_unwatched(&self) -> bool {
        self.state.load(Ordering::Acquire) & UNWATCHED != 0
    }
}
