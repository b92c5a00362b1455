//! Requests that met a transient error and wait for another attempt.
//!
//! Rare, few and short, so a lock does: nothing but moves of words happens under it.

#![forbid(unsafe_code)]

use super::request::Request;
use super::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use super::sync::{Mutex, lock};
use std::collections::TryReserveError;

/// How often a request is tried at most.
pub const MAX_ATTEMPTS: u8 = 6;
/// Waiting time before the second attempt; it doubles with each one.
const FIRST_DELAY_NS: u64 = 200_000;
/// How many requests can wait here; one more is answered with its error.
const ROOM: usize = 64;

struct Waiting {
    due: u64,
    request: Request,
}

/// See the module.
pub struct Retries {
    list: Mutex<Vec<Waiting>>,
    /// Length of the list, to look at without the lock.
    waiting: AtomicUsize,
    /// Counts what left the list for a worker, so that somebody who looks
    /// through the queue, the workers and this list notices what went past.
    left: AtomicU64,
}

impl Retries {
    /// With all the room that there will be.
    pub fn new() -> Result<Self, TryReserveError> {
        let mut list = Vec::new();
        list.try_reserve_exact(ROOM)?;
        Ok(Self { list: Mutex::new(list), waiting: AtomicUsize::new(0), left: AtomicU64::new(0) })
    }

    /// Keeps a request for another attempt, unless it had enough of them.
    pub fn add(&self, request: &Request, now: u64) -> bool {
        let attempts = request.attempts + 1;
        let mut list = lock(&self.list);
        if attempts >= MAX_ATTEMPTS || list.len() == ROOM {
            return false;
        }
        let due = now + (FIRST_DELAY_NS << request.attempts);
        list.push(Waiting { due, request: Request { attempts, ..*request } });
        self.waiting.store(list.len(), Ordering::SeqCst);
        true
    }

    /// Takes out a request whose time has come, or any if `now` is `None`.
    /// `publish` sees it before it has left.
    pub fn take(&self, now: Option<u64>, publish: impl FnOnce(&Request)) -> Option<Request> {
        if self.is_empty() {
            return None;
        }
        let mut list = lock(&self.list);
        let index = list.iter().position(|w| now.is_none_or(|now| w.due <= now))?;
        let request = list.swap_remove(index).request;
        publish(&request);
        // In this order: who finds the list empty finds that something has left.
        self.left.fetch_add(1, Ordering::SeqCst);
        self.waiting.store(list.len(), Ordering::SeqCst);
        Some(request)
    }

    /// The oldest of those that wait and match.
    pub fn oldest(&self, matches: impl Fn(&Request) -> bool) -> Option<Request> {
        if self.is_empty() {
            return None;
        }
        let list = lock(&self.list);
        list.iter().map(|w| w.request).filter(matches).min_by_key(|request| request.submitted)
    }

    /// Takes out a request that matches, for good.
    pub fn withdraw(&self, matches: impl Fn(&Request) -> bool) -> Option<Request> {
        if self.is_empty() {
            return None;
        }
        let mut list = lock(&self.list);
        let index = list.iter().position(|w| matches(&w.request))?;
        let request = list.swap_remove(index).request;
        self.waiting.store(list.len(), Ordering::SeqCst);
        Some(request)
    }

    /// How many of those that wait match.
    pub fn count(&self, matches: impl Fn(&Request) -> bool) -> usize {
        if self.is_empty() {
            return 0;
        }
        lock(&self.list).iter().filter(|w| matches(&w.request)).count()
    }

    /// When the first one is due.
    pub fn next_due(&self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        lock(&self.list).iter().map(|w| w.due).min()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// How many have left for a worker so far.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::SeqCst)
    }
}
