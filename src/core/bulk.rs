//! Large requests under way: each is a sequence of short steps, so that small
//! requests need not wait for it.
//!
//! The memory of a registration is faulted in by slices, which all workers share;
//! then one worker makes the call. The first slice goes alone: it prepares what
//! the others need. A call cannot be interrupted, so while long ones run one
//! worker stays free of them.
//!
//! A step takes a hundred microseconds and more, so a lock does for the table.

#![forbid(unsafe_code)]

use super::request::{Hints, Queue, Request, Words};
use super::sync::atomic::{AtomicUsize, Ordering};
use super::sync::{Mutex, lock};
use crate::slots::OutOfMemory;
use std::ops::Range;

/// Bytes of a slice, and its alignment: what a huge page has. With pages of
/// 4 KiB a CPU zeroes and maps it in about a millisecond.
pub const SLICE: u64 = 2 << 20;

/// A call for as many bytes may take so long that small requests would notice.
const LONG_CALL: u64 = 64 << 20;

/// The queues of large requests, the first one first.
pub type Queues = [Queue; 2];

/// What a worker can do for a large request.
pub enum Step<P> {
    /// Fault in a part of its memory.
    Slice(Slice<P>),
    /// Make its call; its memory was faulted in within so many nanoseconds.
    Call(Request, u64),
}

/// A part of the memory of a request.
pub struct Slice<P> {
    /// The request.
    pub request: Request,
    /// Addresses.
    pub range: Range<u64>,
    /// It is the first one.
    pub is_first: bool,
    /// What a slice before has found out about the memory.
    pub plan: Option<P>,
    place: usize,
}

struct Job<P> {
    request: Request,
    /// Whose queue it comes from.
    class: usize,
    /// Older ones have a smaller number.
    number: u64,
    /// When it left the queue.
    started: u64,
    /// Where the next slice begins.
    next: u64,
    /// Whether the first slice is done.
    is_prepared: bool,
    /// Slices that workers have.
    at_work: u32,
    /// How long faulting in took, once it is done.
    populate_ns: u64,
    plan: Option<P>,
}

impl<P> Job<P> {
    fn new(request: Request, class: usize, may_populate: bool, started: u64) -> Self {
        let mut job = Self {
            request,
            class,
            number: 0,
            started,
            next: request.address,
            is_prepared: false,
            at_work: 0,
            populate_ns: 0,
            plan: None,
        };
        if !(may_populate && request.hints.contains(Hints::POPULATE)) {
            job.next = job.end();
        }
        job
    }

    fn end(&self) -> u64 {
        self.request.address.saturating_add(self.request.length)
    }

    fn has_slice(&self) -> bool {
        self.next < self.end() && (self.is_prepared || self.at_work == 0)
    }

    fn is_populated(&self) -> bool {
        self.next >= self.end() && self.at_work == 0
    }
}

struct Table<P> {
    jobs: Box<[Option<Job<P>>]>,
    long_calls: usize,
    started: u64,
}

/// What can be done next.
enum Choice {
    Call(usize),
    Slice(usize),
    Start(usize),
}

/// See the module.
pub struct Bulk<P> {
    table: Mutex<Table<P>>,
    /// Requests in the table, to look at without the lock.
    under_way: AtomicUsize,
    most_long_calls: usize,
}

impl<P: Copy> Bulk<P> {
    /// For as many workers.
    pub fn new(workers: usize) -> Result<Self, OutOfMemory> {
        // Twice as many as workers: urgent ones may fill all of it, others half.
        let mut jobs = Vec::new();
        jobs.try_reserve_exact(2 * workers).map_err(|_| OutOfMemory)?;
        jobs.resize_with(2 * workers, || None);
        let table = Table { jobs: jobs.into_boxed_slice(), long_calls: 0, started: 0 };
        Ok(Self {
            table: Mutex::new(table),
            under_way: AtomicUsize::new(0),
            most_long_calls: workers.saturating_sub(1).max(1),
        })
    }

    /// The next step for a worker, if there is one. `publish` sees the request of
    /// a call before it has left the table. In a closing engine nothing is
    /// faulted in any more.
    pub fn next(
        &self,
        queues: &Queues,
        is_open: bool,
        now: impl Fn() -> u64,
        publish: impl FnOnce(&Words),
    ) -> Option<Step<P>> {
        if self.is_idle(queues) {
            return None;
        }
        let mut table = lock(&self.table);
        loop {
            match choose(&table, queues, self.most_long_calls)? {
                Choice::Start(class) => {
                    self.start(&mut table, class, &queues[class], is_open, &now)
                }
                Choice::Slice(place) => return Some(Step::Slice(table.slice(place)?)),
                Choice::Call(place) => {
                    let job = table.jobs[place].take()?;
                    publish(&job.request.encode());
                    table.long_calls += usize::from(is_long(&job.request));
                    self.under_way.fetch_sub(1, Ordering::SeqCst);
                    return Some(Step::Call(job.request, job.populate_ns));
                }
            }
        }
    }

    /// A slice is done; what comes before `next` needs none any more.
    pub fn finish_slice(&self, slice: &Slice<P>, next: u64, now: impl Fn() -> u64) {
        let mut table = lock(&self.table);
        let Some(job) = &mut table.jobs[slice.place] else { return };
        job.at_work -= 1;
        job.is_prepared = true;
        job.plan = job.plan.or(slice.plan);
        job.next = job.next.max(next);
        if job.is_populated() {
            job.populate_ns = now().saturating_sub(job.started);
        }
    }

    /// The call for a request of the table is done.
    pub fn finish_call(&self, request: &Request) {
        if is_long(request) {
            lock(&self.table).long_calls -= 1;
        }
    }

    /// Whether there is a step for one more worker.
    pub fn has_step(&self, queues: &Queues) -> bool {
        !self.is_idle(queues) && choose(&lock(&self.table), queues, self.most_long_calls).is_some()
    }

    /// How many of the requests in the table match.
    pub fn count(&self, matches: impl Fn(&Request) -> bool) -> usize {
        if self.is_empty() {
            return 0;
        }
        lock(&self.table).jobs.iter().flatten().filter(|job| matches(&job.request)).count()
    }

    /// Whether no request is in the table.
    pub fn is_empty(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    fn is_idle(&self, queues: &Queues) -> bool {
        self.is_empty() && queues.iter().all(Queue::is_empty)
    }

    /// Moves the first request of a queue to the table.
    fn start(
        &self,
        table: &mut Table<P>,
        class: usize,
        queue: &Queue,
        is_open: bool,
        now: impl Fn() -> u64,
    ) {
        // In this order: who finds that it has left the queue looks here.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let started = queue.pop(|_| ()).is_some_and(|words| {
            table.start(Job::new(Request::decode(&words), class, is_open, now()))
        });
        if !started {
            self.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl<P: Copy> Table<P> {
    /// There is room: choose() has seen it.
    fn start(&mut self, job: Job<P>) -> bool {
        let free = self.jobs.iter_mut().find(|place| place.is_none());
        self.started += 1;
        let job = Job { number: self.started, ..job };
        free.map(|place| *place = Some(job)).is_some()
    }

    /// The next slice of a request.
    fn slice(&mut self, place: usize) -> Option<Slice<P>> {
        let job = self.jobs[place].as_mut()?;
        let from = job.next;
        let to = (from / SLICE + 1).saturating_mul(SLICE).min(job.end());
        job.next = to;
        job.at_work += 1;
        Some(Slice {
            request: job.request,
            range: from..to,
            is_first: !job.is_prepared,
            plan: job.plan,
            place,
        })
    }
}

/// Urgent requests before others, and of these the oldest first.
fn choose<P: Copy>(table: &Table<P>, queues: &Queues, most_long_calls: usize) -> Option<Choice> {
    let may_call = |job: &Job<P>| !is_long(&job.request) || table.long_calls < most_long_calls;
    let step = |(place, job): (usize, &Job<P>)| {
        let choice = if job.has_slice() {
            Choice::Slice(place)
        } else if job.is_populated() && may_call(job) {
            Choice::Call(place)
        } else {
            return None;
        };
        Some((job.number, choice))
    };
    let jobs = || table.jobs.iter().enumerate().filter_map(|(i, job)| Some((i, job.as_ref()?)));
    (0..queues.len()).find_map(|class| {
        let steps = jobs().filter(|(_, job)| job.class == class).filter_map(step);
        let oldest = steps.min_by_key(|(number, _)| *number).map(|(_, choice)| choice);
        // Urgent requests may fill the table, others half of it.
        let room = jobs().count() < table.jobs.len() / (class + 1);
        oldest.or_else(|| (room && !queues[class].is_empty()).then_some(Choice::Start(class)))
    })
}

fn is_long(request: &Request) -> bool {
    request.length >= LONG_CALL
}
