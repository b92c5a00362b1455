//! The engine: a queue of requests, and what a worker does with them.
//!
//! Threads are the caller's business: each of them runs [`Engine::work`].

#![forbid(unsafe_code)]

use super::drain::Drain;
use super::idle::Idle;
use super::record::{Phase, Record};
use super::request::{Completion, Delivery, Operation, Outcome, Request, WORDS};
use super::retry::Retries;
use super::ring::{Closed, Ring};
use super::stats::{Counters, Totals};
use super::sync::atomic::{AtomicU32, Ordering, fence};
use super::sync::{Mutex, lock, thread};
use crossbeam_utils::CachePadded;
use std::collections::TryReserveError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// What the engine needs of the world.
pub trait Host: Send + Sync {
    /// A clock that never goes back, in nanoseconds.
    fn now(&self) -> u64;
    /// A cheaper clock in nanoseconds, for differences only.
    fn stamp(&self) -> u64;
    /// Performs a request: the blocking verbs call.
    fn execute(&self, request: &Request) -> Outcome;
    /// Hands a completion to its owner.
    fn deliver(&self, request: &Request, completion: &Completion);
    /// Whether this is a forked child, so that the engine is the parent's.
    fn is_child(&self) -> bool;
}

/// Requests are performed.
const OPEN: u32 = 0;
/// Requests complete with `ECANCELED`; workers end when none is left.
const CLOSING: u32 = 1;
/// Nothing is performed or delivered any more; workers end at once.
const HALTED: u32 = 2;

/// How long a worker looks for more work before it sleeps: about what a wake
/// costs both sides.
const SEARCH_NS: u64 = 20_000;

#[derive(Default)]
struct Worker {
    record: Record,
    counters: Counters,
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
pub struct Engine<H> {
    queue: Ring<WORDS>,
    phase: CachePadded<AtomicU32>,
    idle: Idle,
    workers: Box<[CachePadded<Worker>]>,
    retries: Retries,
    drain: Drain,
    /// What was counted by others than the workers.
    others: Mutex<Totals>,
    spins: bool,
    host: H,
}

impl<H: Host> Engine<H> {
    /// An engine for `workers` threads. `spins`: whether a worker that has run
    /// out of work may look for more before it sleeps; not wise on one CPU.
    pub fn new(
        workers: usize,
        queue_depth: usize,
        spins: bool,
        host: H,
    ) -> Result<Self, TryReserveError> {
        Ok(Self {
            queue: Ring::new(queue_depth)?,
            phase: CachePadded::new(AtomicU32::new(OPEN)),
            idle: Idle::new(workers),
            workers: (0..workers).map(|_| CachePadded::default()).collect(),
            retries: Retries::default(),
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

    /// How many requests can wait.
    pub fn queue_depth(&self) -> usize {
        self.queue.capacity()
    }

    /// How many workers it is made for.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Takes as many of the requests as there is room for; says how many.
    pub fn submit(&self, requests: &[[u64; WORDS]]) -> Result<usize, Closed> {
        let taken = self.queue.push(requests)?;
        if taken > 0 {
            self.idle.notify();
        }
        Ok(taken)
    }

    /// Cancels the oldest queued request that matches.
    pub fn cancel(&self, matches: impl Fn(&Request) -> bool) -> Cancel {
        loop {
            let left = self.retries.left();
            // A request moves from the queue to a worker and from there to the
            // retries: look in this order, and again if one went back to a worker.
            if let Some(words) = self.queue.withdraw(|words| matches(&Request::decode(words))) {
                self.complete_cancelled(&Request::decode(&words));
                return Cancel::Cancelled;
            }
            if self.in_phase(Phase::Running).any(|request| matches(&request)) {
                return Cancel::Running;
            }
            if let Some(request) = self.retries.withdraw(&matches) {
                self.complete_cancelled(&request);
                return Cancel::Cancelled;
            }
            if self.retries.left() == left {
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
        Snapshot {
            submitted: self.queue.pushed(),
            queued: (self.queue.count(|_| true) + self.retries.count(|_| true)) as u64,
            running: self.in_phase(Phase::Running).count() as u64,
            totals,
        }
    }

    /// The life of the worker `index`: performs requests until the engine ends.
    pub fn work(&self, index: usize) {
        self.idle.enter(index);
        let mut ended = self.host.stamp();
        let mut search_pays = false;
        loop {
            // With more to do at once, the end of one request is the start of the
            // next: reading the clock costs as much as all else.
            let (request, started) = match self.take(index) {
                Some(request) => (request, ended),
                None => {
                    fence(Ordering::SeqCst);
                    self.drain.progress();
                    match self.next(index, &mut search_pays) {
                        Some(request) => (request, self.host.stamp()),
                        None => return,
                    }
                }
            };
            // The end of the request before; the begin of this one made a fence.
            self.drain.progress();
            ended = self.serve(index, &request, started);
            if self.host.is_child() {
                // A callback has forked and returned in the child, too.
                return;
            }
            self.workers[index].record.end();
        }
    }

    /// The next request for a worker that found none and may sleep for it;
    /// `None`: the end. `search_pays`: whether a search would have found the last
    /// one that it got here. (One that shares its CPU with a caller who asks now
    /// and then would only keep him from it.)
    fn next(&self, index: usize, search_pays: &mut bool) -> Option<Request> {
        let idle_since = self.host.stamp();
        let alone = self.idle.begin_search();
        let searches = alone && self.spins && *search_pays;
        let mut found = if searches { self.search(index) } else { None };
        while found.is_none() && !self.is_finished() {
            let due = self.retries.next_due();
            let timeout = due.map(|due| Duration::from_nanos(due.saturating_sub(self.host.now())));
            self.idle.sleep(index, timeout, || {
                !self.queue.is_empty() || self.is_finished() || self.retries.next_due() != due
            });
            found = self.take(index);
        }
        self.idle.end_search();
        if let Some(request) = &found {
            *search_pays = request.submitted.saturating_sub(idle_since) < SEARCH_NS;
        }
        if found.is_none() {
            // The others may sleep while this one took what was left.
            self.idle.wake_all();
        } else if !self.queue.is_empty() {
            self.idle.notify();
        }
        found
    }

    /// Looks for work for a short while, and lets others have the CPU: the
    /// thread that was just told of a completion may be waiting for this very one.
    fn search(&self, index: usize) -> Option<Request> {
        let end = self.host.now() + SEARCH_NS;
        while self.host.now() < end && self.phase() == OPEN {
            thread::yield_now();
            if !self.queue.is_empty() {
                return self.take(index);
            }
        }
        None
    }

    /// A request whose turn it is; the worker's record shows it from here on.
    fn take(&self, index: usize) -> Option<Request> {
        let record = &self.workers[index].record;
        self.take_retry(index).or_else(|| {
            self.queue.pop(|words| record.begin(words)).map(|words| Request::decode(&words))
        })
    }

    fn take_retry(&self, index: usize) -> Option<Request> {
        if self.retries.is_empty() {
            return None;
        }
        let now = (self.phase() == OPEN).then(|| self.host.now());
        self.retries.take(now, |request| self.workers[index].record.begin(&request.encode()))
    }

    /// Performs a request and delivers its completion; says when that was done.
    fn serve(&self, index: usize, request: &Request, started: u64) -> u64 {
        let outcome = match self.phase() {
            OPEN => self.execute(request),
            CLOSING => not_done(request, libc::ECANCELED),
            _ => return started,
        };
        if is_transient(outcome.status) && self.retries.add(request, self.host.now()) {
            // Some other worker may be free when it is due.
            self.idle.wake_one();
            return self.host.stamp();
        }
        if self.is_halted() {
            return started;
        }
        let worker = &self.workers[index];
        let mut completion = Completion {
            tag: request.tag,
            operation: request.operation,
            outcome,
            queued_ns: started.saturating_sub(request.submitted),
            busy_ns: 0,
        };
        worker.counters.update(|totals| totals.count(&completion, request.length));
        worker.record.deliver();
        // The time of a callback is a part of its request's.
        if request.delivery != Delivery::Queue {
            self.deliver(request, &completion);
        }
        let ended = self.host.stamp();
        completion.busy_ns = ended.saturating_sub(started);
        worker.counters.update(|totals| totals.add_times(&completion));
        if request.delivery == Delivery::Queue {
            self.deliver(request, &completion);
        }
        ended
    }

    /// The verbs call; a panic in it is the request's failure.
    fn execute(&self, request: &Request) -> Outcome {
        catch_unwind(AssertUnwindSafe(|| self.host.execute(request)))
            .unwrap_or_else(|_| not_done(request, libc::EIO))
    }

    /// A panic here must not end the worker.
    fn deliver(&self, request: &Request, completion: &Completion) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.host.deliver(request, completion)));
    }

    fn complete_cancelled(&self, request: &Request) {
        let completion = Completion {
            tag: request.tag,
            operation: request.operation,
            outcome: not_done(request, libc::ECANCELED),
            queued_ns: self.host.stamp().saturating_sub(request.submitted),
            busy_ns: 0,
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
        let in_queue = || self.queue.count(|words| matches(&Request::decode(words))) > 0;
        let at_work = || {
            let mut requests = self.workers.iter().filter_map(|worker| worker.record.read());
            requests.any(|(_, request)| matches(&request))
        };
        loop {
            let left = self.retries.left();
            // The order in which requests move, as in cancel(). The look at the
            // workers before that is for them: each sees at the end of its
            // request that somebody waits.
            if at_work() || in_queue() || at_work() || self.retries.count(matches) > 0 {
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
        self.queue.close();
        self.idle.wake_all();
        self.drain.progress();
    }

    fn phase(&self) -> u32 {
        self.phase.load(Ordering::SeqCst)
    }

    fn is_finished(&self) -> bool {
        match self.phase() {
            OPEN => false,
            CLOSING => self.queue.is_finished() && self.retries.is_empty(),
            _ => true,
        }
    }
}

/// A failure before or outside the verbs call: a deregistration hands its
/// region back.
fn not_done(request: &Request, status: i32) -> Outcome {
    let region = match request.operation {
        Operation::Deregister => request.address,
        Operation::Register => 0,
    };
    Outcome { region, ..Outcome::failed(status) }
}

/// Whether another attempt may help: an on-demand paging race (`EAGAIN`), or a
/// signal (`EINTR`).
fn is_transient(status: i32) -> bool {
    matches!(status, libc::EAGAIN | libc::EINTR)
}
