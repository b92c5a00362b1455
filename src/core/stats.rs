//! Counters: each worker adds to its own, a reader sums them up.

#![forbid(unsafe_code)]

use super::request::{Completion, Operation};
use super::sync::atomic::{AtomicU64, Ordering};

/// The counters of one worker, or their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests completed, whatever their status.
    pub completed: u64,
    /// Of these: with a status that is neither 0 nor `ECANCELED`.
    pub failed: u64,
    /// Of these: with `ECANCELED`.
    pub cancelled: u64,
    /// Bytes registered less bytes deregistered; of one worker it may wrap.
    pub registered_bytes: u64,
    /// Sum of the times in the queue.
    pub queue_ns_total: u64,
    /// The longest of them.
    pub queue_ns_max: u64,
    /// Sum of the busy times.
    pub busy_ns_total: u64,
    /// The longest of them.
    pub busy_ns_max: u64,
    /// Sum of the times until memory was faulted in, which are part of the busy times.
    pub populate_ns_total: u64,
    /// The longest of them.
    pub populate_ns_max: u64,
}

const WORDS: usize = 10;

impl Totals {
    /// Counts one more completion.
    pub fn count(&mut self, completion: &Completion, length: u64) {
        self.completed += 1;
        match (completion.outcome.status, completion.operation) {
            (0, Operation::Register) => {
                self.registered_bytes = self.registered_bytes.wrapping_add(length);
            }
            (0, Operation::Deregister) => {
                self.registered_bytes = self.registered_bytes.wrapping_sub(length);
            }
            (libc::ECANCELED, _) => self.cancelled += 1,
            _ => self.failed += 1,
        }
    }

    /// Adds the times of a completion.
    pub fn add_times(&mut self, completion: &Completion) {
        self.queue_ns_total += completion.queued_ns;
        self.queue_ns_max = self.queue_ns_max.max(completion.queued_ns);
        self.busy_ns_total += completion.busy_ns;
        self.busy_ns_max = self.busy_ns_max.max(completion.busy_ns);
        self.populate_ns_total += completion.populate_ns;
        self.populate_ns_max = self.populate_ns_max.max(completion.populate_ns);
    }

    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.registered_bytes = self.registered_bytes.wrapping_add(other.registered_bytes);
        self.queue_ns_total += other.queue_ns_total;
        self.queue_ns_max = self.queue_ns_max.max(other.queue_ns_max);
        self.busy_ns_total += other.busy_ns_total;
        self.busy_ns_max = self.busy_ns_max.max(other.busy_ns_max);
        self.populate_ns_total += other.populate_ns_total;
        self.populate_ns_max = self.populate_ns_max.max(other.populate_ns_max);
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let [
            completed,
            failed,
            cancelled,
            registered_bytes,
            queue_ns_total,
            queue_ns_max,
            busy_ns_total,
            busy_ns_max,
            populate_ns_total,
            populate_ns_max,
        ] = words;
        Self {
            completed,
            failed,
            cancelled,
            registered_bytes,
            queue_ns_total,
            queue_ns_max,
            busy_ns_total,
            busy_ns_max,
            populate_ns_total,
            populate_ns_max,
        }
    }

    fn to_words(self) -> [u64; WORDS] {
        [
            self.completed,
            self.failed,
            self.cancelled,
            self.registered_bytes,
            self.queue_ns_total,
            self.queue_ns_max,
            self.busy_ns_total,
            self.busy_ns_max,
            self.populate_ns_total,
            self.populate_ns_max,
        ]
    }
}

/// Counters that one worker writes and anyone reads.
pub struct Counters {
    words: [AtomicU64; WORDS],
}

impl Default for Counters {
    fn default() -> Self {
        Self { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Counters {
    /// What has been counted so far.
    pub fn read(&self) -> Totals {
        Totals::from_words(std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)))
    }

    /// Changes the counters; only their one writer may.
    pub fn update(&self, change: impl FnOnce(&mut Totals)) {
        let before = self.read();
        let mut totals = before;
        change(&mut totals);
        for ((to, old), new) in self.words.iter().zip(before.to_words()).zip(totals.to_words()) {
            if old != new {
                to.store(new, Ordering::Relaxed);
            }
        }
    }
}
