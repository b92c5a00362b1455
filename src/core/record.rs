//! What each worker is doing, for those who look for a request.
//!
//! A worker that begins with a request says so and then makes a full fence; a
//! reader makes one before it looks. So either the reader sees the request, or the
//! worker sees after its fence what the reader did before: halted the engine, or
//! said that it waits. One fence for each request is all that a worker pays: what
//! it has to tell about the end of one, it tells after the begin of the next.

#![forbid(unsafe_code)]

use super::request::{Request, WORDS, Words};
use super::sync::atomic::{AtomicU64, Ordering, fence};

const IDLE: u64 = 0;
/// The request is being worked on.
const RUNNING: u64 = 1;
/// The request is over, and its completion is being delivered.
const DELIVERING: u64 = 2;
const PHASE_MASK: u64 = 3;
/// Above the phase: how many requests have ended, so that a reader notices a change.
const ENDED: u64 = 4;

/// Where a request is with its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A verbs call is being made or about to be.
    Running,
    /// The completion is being published, or the callback runs.
    Delivering,
}

/// See the module. One worker writes, anyone reads.
pub struct Record {
    state: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Default for Record {
    fn default() -> Self {
        Self { state: AtomicU64::new(IDLE), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Record {
    /// The worker begins with a request.
    pub fn begin(&self, request: &Words) {
        // A reader that sees one of the new words sees the end of the last request.
        fence(Ordering::Release);
        for (to, from) in self.words.iter().zip(request) {
            to.store(*from, Ordering::Relaxed);
        }
        self.enter(RUNNING);
        fence(Ordering::SeqCst);
    }

    /// The worker delivers the completion from now on.
    pub fn deliver(&self) {
        self.enter(DELIVERING);
    }

    /// The worker has done with the request, also with its owner. No fence: the
    /// next begin() makes one.
    pub fn end(&self) {
        self.enter(ENDED | IDLE);
    }

    /// Only the worker changes the state, so it knows what it is.
    fn enter(&self, phase: u64) {
        let ended = self.state.load(Ordering::Relaxed) & !PHASE_MASK;
        self.state.store(ended + phase, Ordering::Release);
    }

    /// What the worker is doing.
    pub fn read(&self) -> Option<(Phase, Request)> {
        fence(Ordering::SeqCst);
        loop {
            let before = self.state.load(Ordering::Acquire);
            let phase = match before & PHASE_MASK {
                IDLE => return None,
                RUNNING => Phase::Running,
                _ => Phase::Delivering,
            };
            let words = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let after = self.state.load(Ordering::Acquire);
            if after & !PHASE_MASK == before & !PHASE_MASK {
                return Some((phase, Request::decode(&words)));
            }
        }
    }
}
