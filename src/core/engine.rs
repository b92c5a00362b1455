//! The engine: queues of requests, and what others than its workers do with them.
//!
//! Threads are the caller's business: each of them runs [`Engine::work`].

#![forbid(unsafe_code)]

use super::bulk::{Bulk, Queues};
use super::drain::Drain;
use super::idle::Idle;
use super::record::{Phase, Record};
use super::request::{Completion, Hints, Operation, Outcome, Queue, Request, Words};
use super::retry::Retries;
use super::ring::Closed;
use super::stats::{Counters, Totals};
use super::sync::atomic::{AtomicU32, Ordering, fence};
use super::sync::{Mutex, lock, thread};
use crate::slots::OutOfMemory;
use crossbeam_utils::CachePadded;
use std::ops::Range;
use std::time::Duration;

/// What the engine needs of the world.
pub trait Host: Send + Sync {
    /// What it finds out about the memory of a request and need not find out again.
    type Plan: Copy + Send;
    /// A clock that never goes back, in nanoseconds.
    fn now(&self) -> u64;
    /// A cheaper clock in nanoseconds, for differences only.
    fn stamp(&self) -> u64;
    /// Performs a request: the blocking verbs call.
    fn execute(&self, request: &Request) -> Outcome;
    /// Before any of the memory of a request is faulted in.
    fn prepare(&self, request: &Request);
    /// Faults in a part of the memory of a request. Says from which address on the
    /// rest is worth it, `u64::MAX` for none of it; a reason to fail is for the
    /// device to find.
    fn populate(&self, request: &Request, part: Range<u64>, plan: &mut Option<Self::Plan>) -> u64;
    /// Hands a completion to its owner.
    fn deliver(&self, request: &Request, completion: &Completion);
    /// Whether this is a forked child, so that the engine is the parent's.
    fn is_child(&self) -> bool;
}

/// Requests are performed.
pub(super) const OPEN: u32 = 0;
/// Requests complete with `ECANCELED`; workers end when none is left.
pub(super) const CLOSING: u32 = 1;
/// Nothing is performed or delivered any more; workers end at once.
const HALTED: u32 = 2;

#[derive(Default)]
pub(super) struct Worker {
    pub(super) record: Record,
    pub(super) counters: Counters,
}

/// What [`Engine::cancel`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The request was queued; its completion has been delivered.
    Cancelled,
    /// A worker is busy with it.
    Running,
    /// No such request is queued or running.
    NotFound,
}

/// What an engine has done and is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Requests taken.
    pub submitted: u64,
    /// Requests waiting for a worker.
    pub queued: u64,
    /// Requests that a worker is busy with.
    pub running: u64,
    /// What has been counted.
    pub totals: Totals,
}

/// See the module.
pub struct Engine<H: Host> {
    /// Small requests: urgent ones, others.
    pub(super) quick: [Queue; 2],
    /// Large requests: urgent ones, others.
    pub(super) large: Queues,
    pub(super) bulk: Bulk<H::Plan>,
    phase: CachePadded<AtomicU32>,
    pub(super) idle: Idle,
    pub(super) workers: Box<[CachePadded<Worker>]>,
    pub(super) retries: Retries,
    pub(super) drain: Drain,
    /// What was counted by others than the workers.
    others: Mutex<Totals>,
    pub(super) spins: bool,
    pub(super) host: H,
}

impl<H: Host> Engine<H> {
    /// An engine for `workers` threads. `spins`: whether a worker that has run
    /// out of work may look for more before it sleeps; not wise on one CPU.
    pub fn new(
        workers: usize,
        queue_depth: usize,
        spins: bool,
        host: H,
    ) -> Result<Self, OutOfMemory> {
        let rings = || Ok::<_, OutOfMemory>([Queue::new(queue_depth)?, Queue::new(queue_depth)?]);
        let mut records = Vec::new();
        records.try_reserve_exact(workers)?;
        records.extend((0..workers).map(|_| CachePadded::default()));
        Ok(Self {
            quick: rings()?,
            large: rings()?,
            bulk: Bulk::new(workers)?,
            phase: CachePadded::new(AtomicU32::new(OPEN)),
            idle: Idle::new(workers),
            workers: records.into_boxed_slice(),
            retries: Retries::new()?,
            drain: Drain::default(),
            others: Mutex::new(Totals::default()),
            spins,
            host,
        })
    }

    /// The world.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// How many requests of a kind can wait.
    pub fn queue_depth(&self) -> usize {
        self.quick[0].capacity()
    }

    /// How many workers it is made for.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Takes as many of the front of the requests as there is room for; says how
    /// many.
    pub fn submit(&self, requests: &[Words]) -> Result<usize, Closed> {
        let mut taken = 0;
        for alike in requests.chunk_by(|a, b| Request::hints_of(a) == Request::hints_of(b)) {
            let count = match self.queue_for(Request::hints_of(&alike[0])).push(alike) {
                Err(Closed) if taken == 0 => return Err(Closed),
                count => count.unwrap_or(0),
            };
            taken += count;
            if count < alike.len() {
                break;
            }
        }
        if taken > 0 {
            self.idle.notify();
        }
        Ok(taken)
    }

    /// Cancels the oldest queued request that matches.
    pub fn cancel(&self, matches: impl Fn(&Request) -> bool) -> Cancel {
        loop {
            let left = self.retries.left();
            // A request moves from a queue to a worker, if it is large by way of the
            // table, and from there to the retries: look in this order, and again if
            // one went back to a worker, or came from one only now.
            if let Some(oldest) = self.oldest_queued(&matches) {
                if self.withdraw(&oldest) {
                    self.complete_cancelled(&oldest);
                    return Cancel::Cancelled;
                }
                // A worker was faster.
                continue;
            }
            let is_running = || self.in_phase(Phase::Running).any(|request| matches(&request));
            if self.bulk.count(&matches) > 0 || is_running() {
                return Cancel::Running;
            }
            if self.retries.count(&matches) == 0 && self.retries.left() == left {
                return Cancel::NotFound;
            }
        }
    }

    /// Waits until no request that matches is queued, running or being
    /// delivered, or the engine is halted; `false` if `remaining` said that the
    /// time is up before.
    pub fn drain(
        &self,
        matches: impl Fn(&Request) -> bool,
        remaining: impl Fn() -> Option<Duration>,
    ) -> bool {
        self.drain.wait(|| self.is_halted() || !self.is_under_way(&matches), remaining)
    }

    /// Waits until no worker delivers for an owner that has no request left.
    pub fn wait_delivered(&self, owner: u64) {
        while self.is_owner_served(owner) {
            thread::yield_now();
        }
    }

    /// Whether a worker is busy with a request of this owner.
    pub fn is_owner_served(&self, owner: u64) -> bool {
        self.workers
            .iter()
            .filter_map(|worker| worker.record.read())
            .any(|(_, request)| request.owner == owner)
    }

    /// Takes no more requests; queued ones complete with `ECANCELED`, and the
    /// workers end.
    pub fn close(&self) {
        self.leave_open(CLOSING);
    }

    /// Takes no more requests; nothing that is not running already will run.
    pub fn halt(&self) {
        self.leave_open(HALTED);
    }

    /// Whether it was halted.
    pub fn is_halted(&self) -> bool {
        self.phase() == HALTED
    }

    /// Whether no worker is in a verbs call. Once the engine is halted and this
    /// was true, there will be no more.
    pub fn is_quiet(&self) -> bool {
        self.in_phase(Phase::Running).next().is_none()
    }

    /// Counts bytes that were registered by a request and deregistered without one.
    pub fn count_deregistered(&self, length: u64) {
        let mut totals = lock(&self.others);
        totals.registered_bytes = totals.registered_bytes.wrapping_sub(length);
    }

    /// What has been done and is being done.
    pub fn snapshot(&self) -> Snapshot {
        let mut totals = *lock(&self.others);
        for worker in &self.workers {
            totals.merge(&worker.counters.read());
        }
        let queued: usize = self.queues().map(|queue| queue.count(|_| true)).sum();
        let running = self.in_phase(Phase::Running).count() + self.bulk.count(|_| true);
        Snapshot {
            submitted: self.queues().map(Queue::pushed).sum(),
            queued: (queued + self.retries.count(|_| true)) as u64,
            running: running as u64,
            totals,
        }
    }

    /// Of all that wait, the one that was submitted first. Of those of one call what
    /// waits for another attempt goes before what is urgent, and that before others.
    fn oldest_queued(&self, matches: &impl Fn(&Request) -> bool) -> Option<Request> {
        let in_queue = |queue: &Queue| queue.oldest(|words| matches(&Request::decode(words)));
        let in_queues = self.queues().filter_map(in_queue).map(|words| Request::decode(&words));
        let waiting = self.retries.oldest(matches);
        waiting.into_iter().chain(in_queues).min_by_key(|request| request.submitted)
    }

    /// Takes a request out of where it waits, if it still does.
    fn withdraw(&self, request: &Request) -> bool {
        let words = request.encode();
        self.queues().any(|queue| queue.withdraw(|other| *other == words).is_some())
            || self.retries.withdraw(|other| other == request).is_some()
    }

    fn complete_cancelled(&self, request: &Request) {
        let completion = Completion {
            tag: request.tag,
            operation: request.operation,
            outcome: not_done(request, libc::ECANCELED),
            queued_ns: self.host.stamp().saturating_sub(request.submitted),
            busy_ns: 0,
            populate_ns: 0,
        };
        let mut totals = lock(&self.others);
        totals.count(&completion, request.length);
        totals.add_times(&completion);
        drop(totals);
        self.deliver(request, &completion);
        fence(Ordering::SeqCst);
        self.drain.progress();
    }

    fn is_under_way(&self, matches: &impl Fn(&Request) -> bool) -> bool {
        let in_queue =
            || self.queues().any(|queue| queue.any(|words| matches(&Request::decode(words))));
        let at_work = || {
            let mut requests = self.workers.iter().filter_map(|worker| worker.record.read());
            requests.any(|(_, request)| matches(&request))
        };
        loop {
            let left = self.retries.left();
            // The order in which requests move, as in cancel(). The look at the
            // workers before that is for them: each sees at the end of its
            // request that somebody waits.
            if at_work()
                || in_queue()
                || self.bulk.count(matches) > 0
                || at_work()
                || self.retries.count(matches) > 0
            {
                return true;
            }
            if self.retries.left() == left {
                return false;
            }
        }
    }

    fn in_phase(&self, phase: Phase) -> impl Iterator<Item = Request> {
        self.workers
            .iter()
            .filter_map(|worker| worker.record.read())
            .filter(move |(found, _)| *found == phase)
            .map(|(_, request)| request)
    }

    fn leave_open(&self, phase: u32) {
        self.phase.fetch_max(phase, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.queues().for_each(Queue::close);
        self.idle.wake_all();
        self.drain.progress();
    }

    pub(super) fn phase(&self) -> u32 {
        self.phase.load(Ordering::SeqCst)
    }

    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.quick.iter().chain(&self.large)
    }

    fn queue_for(&self, hints: Hints) -> &Queue {
        let queues = if hints.contains(Hints::BULK) { &self.large } else { &self.quick };
        &queues[usize::from(!hints.contains(Hints::URGENT))]
    }

    /// Whether a worker may end.
    pub(super) fn is_finished(&self) -> bool {
        match self.phase() {
            OPEN => false,
            CLOSING => {
                self.queues().all(Queue::is_finished)
                    && self.bulk.is_empty()
                    && self.retries.is_empty()
            }
            _ => true,
        }
    }
}

/// A failure before or outside the verbs call: a deregistration hands its
/// region back.
pub(super) fn not_done(request: &Request, status: i32) -> Outcome {
    let region = match request.operation {
        Operation::Deregister => request.address,
        Operation::Register => 0,
    };
    Outcome { region, ..Outcome::failed(status) }
}
