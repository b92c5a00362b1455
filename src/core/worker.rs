//! The life of a worker.

#![forbid(unsafe_code)]

use super::bulk::{Slice, Step};
use super::engine::{CLOSING, Engine, Host, OPEN, not_done};
use super::request::{Completion, Delivery, Outcome, Queue, Request};
use super::sync::atomic::{Ordering, fence};
use super::sync::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How long a worker looks for more work before it sleeps: about what a wake
/// costs both sides.
const SEARCH_NS: u64 = 20_000;

/// How long small requests come first before a large one gets a step: as long as
/// a step takes, so that neither has less than half of the worker.
const QUICK_TURN_NS: u64 = 1_000_000;

/// What a worker remembers from one piece of work to the next.
struct Turn {
    /// When the last request was over.
    ended: u64,
    /// When the last step of a large request was over.
    bulk_ended: u64,
    /// Whether a search would have found the last one that it slept for.
    search_pays: bool,
}

/// What there is to do next.
enum Work<P> {
    /// A small request.
    Request(Request),
    /// A step of a large one.
    Step(Step<P>),
}

impl<H: Host> Engine<H> {
    /// The life of the worker `index`: performs requests until the engine ends.
    pub fn work(&self, index: usize) {
        let now = self.host.stamp();
        let mut turn = Turn { ended: now, bulk_ended: now, search_pays: false };
        loop {
            let work = match self.pick(index, &turn) {
                Some(work) => work,
                None => {
                    fence(Ordering::SeqCst);
                    self.drain.progress();
                    match self.next(index, &mut turn) {
                        Some(work) => work,
                        None => return,
                    }
                }
            };
            // The end of the request before; the begin of this one made a fence.
            self.drain.progress();
            self.perform(index, work, &mut turn);
            if self.host.is_child() {
                // A callback has forked and returned in the child, too.
                return;
            }
            self.workers[index].record.end();
        }
    }

    fn perform(&self, index: usize, work: Work<H::Plan>, turn: &mut Turn) {
        match work {
            // With more to do at once, the end of one request is the start of the
            // next: reading the clock costs as much as much else.
            Work::Request(request) => turn.ended = self.serve(index, &request, turn.ended, 0),
            Work::Step(step) => {
                // More than this one: for another worker. What this one makes
                // possible it will find itself.
                if self.bulk.has_step(&self.large) {
                    self.idle.notify();
                }
                match step {
                    Step::Slice(slice) => self.populate(slice),
                    Step::Call(request, populate_ns) => {
                        self.serve(index, &request, self.host.stamp(), populate_ns);
                        self.bulk.finish_call(&request);
                    }
                }
                turn.ended = self.host.stamp();
                turn.bulk_ended = turn.ended;
            }
        }
    }

    /// What this worker does next, if there is something.
    fn pick(&self, index: usize, turn: &Turn) -> Option<Work<H::Plan>> {
        let request = || self.take(index).map(Work::Request);
        let step = || self.take_step(index).map(Work::Step);
        if turn.ended.saturating_sub(turn.bulk_ended) < QUICK_TURN_NS {
            request().or_else(step)
        } else {
            step().or_else(request)
        }
    }

    /// The next work for a worker that found none and may sleep for it; `None`:
    /// the end. It searches first if a search would have found what it got here
    /// the last time. (One that shares its CPU with a caller who asks now and
    /// then would only keep him from it.)
    fn next(&self, index: usize, turn: &mut Turn) -> Option<Work<H::Plan>> {
        let idle_since = self.host.stamp();
        let alone = self.idle.begin_search();
        let searches = alone && self.spins && turn.search_pays;
        let mut found = if searches { self.search(index, turn) } else { None };
        while found.is_none() && !self.is_finished() {
            let due = self.retries.next_due();
            let timeout = due.map(|due| Duration::from_nanos(due.saturating_sub(self.host.now())));
            self.idle.sleep(index, timeout, || {
                self.has_work() || self.is_finished() || self.retries.next_due() != due
            });
            found = self.pick(index, turn);
        }
        self.idle.end_search();
        if let Some(Work::Request(request)) = &found {
            turn.search_pays = request.submitted.saturating_sub(idle_since) < SEARCH_NS;
        }
        turn.ended = self.host.stamp();
        if found.is_none() {
            // The others may sleep while this one took what was left.
            self.idle.wake_all();
        } else if self.has_work() {
            self.idle.notify();
        }
        found
    }

    /// Looks for work for a short while, and lets others have the CPU: the
    /// thread that was just told of a completion may be waiting for this very one.
    fn search(&self, index: usize, turn: &Turn) -> Option<Work<H::Plan>> {
        let end = self.host.now() + SEARCH_NS;
        while self.host.now() < end && self.phase() == OPEN {
            thread::yield_now();
            if self.has_work() {
                return self.pick(index, turn);
            }
        }
        None
    }

    /// Whether a worker would find something to do, retries aside.
    fn has_work(&self) -> bool {
        !self.quick.iter().all(Queue::is_empty) || self.bulk.has_step(&self.large)
    }

    /// A request whose turn it is; the worker's record shows it from here on.
    fn take(&self, index: usize) -> Option<Request> {
        let record = &self.workers[index].record;
        self.take_retry(index).or_else(|| {
            let words = self.quick.iter().find_map(|queue| queue.pop(|words| record.begin(words)));
            words.map(|words| Request::decode(&words))
        })
    }

    fn take_retry(&self, index: usize) -> Option<Request> {
        if self.retries.is_empty() {
            return None;
        }
        let now = (self.phase() == OPEN).then(|| self.host.now());
        self.retries.take(now, |request| self.workers[index].record.begin(&request.encode()))
    }

    /// A step of a large request; the worker's record shows a call from here on.
    fn take_step(&self, index: usize) -> Option<Step<H::Plan>> {
        let phase = self.phase();
        if phase != OPEN && phase != CLOSING {
            return None;
        }
        let record = &self.workers[index].record;
        let begin = |words: &_| record.begin(words);
        let step = self.bulk.next(&self.large, phase == OPEN, || self.host.stamp(), begin);
        if let Some(Step::Slice(_)) = &step {
            // As the begin of a request does, for who waits for the last one's end.
            fence(Ordering::SeqCst);
        }
        step
    }

    /// Faults in a slice; a panic in it is no reason not to try the call.
    fn populate(&self, mut slice: Slice<H::Plan>) {
        let next = catch_unwind(AssertUnwindSafe(|| {
            if slice.is_first {
                self.host.prepare(&slice.request);
            }
            self.host.populate(&slice.request, slice.range.clone(), &mut slice.plan)
        }));
        let next = if self.phase() == OPEN { next.unwrap_or(u64::MAX) } else { u64::MAX };
        self.bulk.finish_slice(&slice, next, || self.host.stamp());
    }

    /// Performs a request, whose memory was faulted in within `populate_ns`, and
    /// delivers its completion; says when that was done.
    fn serve(&self, index: usize, request: &Request, started: u64, populate_ns: u64) -> u64 {
        let outcome = match self.phase() {
            OPEN => self.execute(request),
            CLOSING => not_done(request, libc::ECANCELED),
            _ => return started,
        };
        if is_transient(&outcome) && self.retries.add(request, self.host.now()) {
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
            queued_ns: started.saturating_sub(request.submitted).saturating_sub(populate_ns),
            busy_ns: 0,
            populate_ns,
        };
        worker.counters.update(|totals| totals.count(&completion, request.length));
        worker.record.deliver();
        let busy_until = |end: u64| populate_ns + end.saturating_sub(started);
        if request.delivery == Delivery::CompletionCallback {
            completion.busy_ns = busy_until(self.host.stamp());
        }
        // The time of a callback is a part of its request's.
        if request.delivery != Delivery::Queue {
            self.deliver(request, &completion);
        }
        let ended = self.host.stamp();
        completion.busy_ns = busy_until(ended);
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
    pub(super) fn deliver(&self, request: &Request, completion: &Completion) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.host.deliver(request, completion)));
    }
}

/// Whether another attempt may help: an on-demand paging race (`EAGAIN`), or a
/// signal (`EINTR`). Not where it is known what stands in the way.
fn is_transient(outcome: &Outcome) -> bool {
    matches!(outcome.status, libc::EAGAIN | libc::EINTR) && outcome.diag == 0
}
