//! A completion queue: reserved places, completions, and their signal.

#![forbid(unsafe_code)]

use super::request::{Queue, Words};
use super::signal::{Event, Signal};
use super::sync::atomic::{AtomicU64, Ordering};
use super::sync::thread;
use crate::slots::OutOfMemory;
use crossbeam_utils::CachePadded;
use std::time::Duration;

/// See the module.
pub struct Completions<E> {
    ring: Queue,
    capacity: u64,
    /// Places taken by requests under way and by unread completions.
    reserved: CachePadded<AtomicU64>,
    signal: CachePadded<Signal<E>>,
}

impl<E: Event> Completions<E> {
    /// A queue with room for `capacity` completions.
    pub fn new(capacity: u32, event: E) -> Result<Self, OutOfMemory> {
        Ok(Self {
            ring: Queue::new(capacity as usize)?,
            capacity: u64::from(capacity),
            reserved: CachePadded::new(AtomicU64::new(0)),
            signal: CachePadded::new(Signal::new(event)),
        })
    }

    /// Takes up to `wanted` places for completions to come; says how many.
    pub fn reserve(&self, wanted: usize) -> usize {
        let mut reserved = self.reserved.load(Ordering::Relaxed);
        loop {
            let granted = (wanted as u64).min(self.capacity - reserved);
            match self.reserved.compare_exchange_weak(
                reserved,
                reserved + granted,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return granted as usize,
                Err(now) => reserved = now,
            }
        }
    }

    /// Gives back places that were reserved and not used.
    pub fn release(&self, places: usize) {
        if places > 0 {
            self.reserved.fetch_sub(places as u64, Ordering::AcqRel);
        }
    }

    /// Puts a completion in its reserved place, then signals. Once this has
    /// returned, the completion can be read.
    pub fn complete(&self, completion: &Words) {
        self.ring.push_reserved(completion);
        self.signal.raise(|| self.ring.is_empty());
    }

    /// Takes out up to `limit` completions, oldest first; says how many.
    pub fn poll(&self, limit: usize, mut each: impl FnMut(usize, Words)) -> usize {
        let mut count = 0;
        loop {
            let before = count;
            while count < limit {
                if let Some(completion) = self.ring.pop(|_| ()) {
                    each(count, completion);
                    count += 1;
                } else if self.ring.is_being_filled() {
                    // Behind the next one may be others that were completed
                    // before this call: they can be read, so wait for it.
                    thread::yield_now();
                } else {
                    break;
                }
            }
            self.release(count - before);
            if self.signal.settle(|| self.ring.is_empty()) || count == limit {
                break;
            }
        }
        count
    }

    /// The event, which follows the queue from now on.
    pub fn watch(&self) -> &E {
        self.signal.watch(|| self.ring.is_empty());
        self.signal.event()
    }

    /// Sleeps while nothing can be read, until the time is up (`None`: no
    /// limit) or for no reason.
    pub fn sleep(&self, limit: Option<Duration>) {
        self.signal.sleep(limit, || self.ring.is_empty());
    }

    /// Whether requests are under way whose completion is still to come.
    ///
    /// Only true for sure while no other thread posts or polls.
    pub fn is_awaiting(&self) -> bool {
        self.reserved.load(Ordering::Acquire) != self.ring.count(|_| true) as u64
    }
}
