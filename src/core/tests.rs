//! The core against models of it, and under many threads. Miri runs this file
//! too, with fewer rounds.

use super::bulk::SLICE;
use super::completions::Completions;
use super::engine::{Cancel, Engine, Host, Snapshot};
use super::request::{Completion, Delivery, Hints, Operation, Outcome, Request};
use super::retry::MAX_ATTEMPTS;
use super::ring::{Closed, Ring};
use super::signal::Event;
use crossbeam_channel::{Receiver, Sender, unbounded};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Miri is some thousand times slower.
const fn rounds(native: usize) -> usize {
    if cfg!(miri) { native / 2000 + 2 } else { native }
}

fn proptest_config() -> ProptestConfig {
    ProptestConfig { cases: rounds(512) as u32, failure_persistence: None, ..Default::default() }
}

fn request(tag: u64) -> Request {
    Request {
        operation: Operation::Register,
        delivery: Delivery::Callback,
        hints: Hints::NONE,
        attempts: 0,
        policy: 0,
        access: 7,
        owner: 1,
        tag,
        pd: tag % 3 + 1,
        address: 0x1000,
        length: 10,
        iova: 0x1000,
        submitted: 0,
    }
}

// ---- ring ----------------------------------------------------------------

#[derive(Clone, Debug)]
enum RingStep {
    Push(usize),
    Pop,
    Withdraw(u64),
    Close,
}

fn ring_step() -> impl Strategy<Value = RingStep> {
    prop_oneof![
        4 => (0_usize..6).prop_map(RingStep::Push),
        4 => Just(RingStep::Pop),
        2 => (0_u64..40).prop_map(RingStep::Withdraw),
        1 => Just(RingStep::Close),
    ]
}

proptest! {
    #![proptest_config(proptest_config())]

    /// One thread: the ring is a bounded FIFO from which records can be withdrawn.
    #[test]
    fn ring_is_a_bounded_fifo(capacity in 1_usize..9, steps in prop::collection::vec(ring_step(), 0..80)) {
        let ring = Ring::<2>::new(capacity).unwrap();
        let capacity = capacity.next_power_of_two();
        prop_assert_eq!(ring.capacity(), capacity);
        // (value, withdrawn); a withdrawn one holds its slot until it comes up.
        let mut model = VecDeque::new();
        let mut next = 0_u64;
        let mut closed = false;
        for step in steps {
            match step {
                RingStep::Push(count) => {
                    let batch: Vec<_> = (next..next + count as u64).map(|n| [n, !n]).collect();
                    let room = count.min(capacity - model.len());
                    if closed {
                        prop_assert_eq!(ring.push(&batch), Err(Closed));
                    } else {
                        prop_assert_eq!(ring.push(&batch), Ok(room));
                        model.extend((next..next + room as u64).map(|n| (n, false)));
                        next += room as u64;
                    }
                }
                RingStep::Pop => {
                    prop_assert_eq!(ring.is_empty(), model.is_empty());
                    while model.front().is_some_and(|(_, withdrawn)| *withdrawn) {
                        model.pop_front();
                    }
                    let expected = model.pop_front().map(|(n, _)| [n, !n]);
                    prop_assert_eq!(ring.pop(|_| ()), expected);
                }
                RingStep::Withdraw(value) => {
                    let found = model.iter_mut().find(|(n, gone)| *n == value && !*gone);
                    let expected = found.map(|entry| { entry.1 = true; [value, !value] });
                    prop_assert_eq!(ring.withdraw(|words| words[0] == value), expected);
                }
                RingStep::Close => {
                    ring.close();
                    closed = true;
                }
            }
            prop_assert_eq!(ring.count(|_| true), model.iter().filter(|(_, gone)| !gone).count());
            prop_assert_eq!(ring.any(|_| true), ring.count(|_| true) > 0);
            prop_assert_eq!(ring.pushed(), next);
            prop_assert_eq!(ring.is_finished(), closed && model.is_empty());
        }
    }

    #[test]
    fn requests_survive_their_encoding(
        deregister: bool, delivery in 0..3, urgent: bool, bulk: bool, attempts: u8, policy: u8,
        access: u32, words: [u64; 7],
    ) {
        let urgent = if urgent { Hints::URGENT } else { Hints::NONE };
        let bulk = if bulk { Hints::BULK } else { Hints::HUGE };
        let request = Request {
            operation: if deregister { Operation::Deregister } else { Operation::Register },
            delivery: match delivery {
                0 => Delivery::Callback,
                1 => Delivery::Queue,
                _ => Delivery::CompletionCallback,
            },
            hints: urgent | bulk,
            attempts,
            policy,
            access,
            owner: words[0],
            tag: words[1],
            pd: words[2],
            address: words[3],
            length: words[4],
            iova: words[5],
            submitted: words[6],
        };
        prop_assert_eq!(Request::decode(&request.encode()), request);
    }

    #[test]
    fn completions_survive_their_encoding(
        deregister: bool, status: i32, diag: u32, words: [u64; 6],
    ) {
        let completion = Completion {
            tag: words[0],
            operation: if deregister { Operation::Deregister } else { Operation::Register },
            outcome: Outcome { status, diag, diag_arg: words[1], region: words[2] },
            queued_ns: words[3],
            busy_ns: words[4],
            populate_ns: words[5],
        };
        prop_assert_eq!(Completion::decode(&completion.encode()), completion);
    }
}

/// Who drains looks after each request: a deep queue must not cost more.
#[test]
fn ring_looks_at_one_of_many() {
    let ring = Ring::<1>::new(64).unwrap();
    assert_eq!(ring.push(&[[1]; 64]), Ok(64));
    let looks = Cell::new(0);
    assert!(ring.any(|_| {
        looks.set(looks.get() + 1);
        true
    }));
    assert_eq!(looks.get(), 1);
}

/// Many producers in batches, many consumers and a canceller: each record comes
/// out exactly once.
#[test]
fn ring_loses_and_doubles_nothing() {
    const PRODUCERS: u64 = 3;
    let each = rounds(100_000) as u64;
    let ring = Ring::<1>::new(64).unwrap();
    let seen: Vec<_> = (0..PRODUCERS * each).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(seen.len());
    let see = |value: u64| {
        seen[value as usize].fetch_add(1, Ordering::Relaxed);
        left.fetch_sub(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let ring = &ring;
            scope.spawn(move || {
                let all: Vec<_> = (producer * each..(producer + 1) * each).map(|n| [n]).collect();
                let mut rest = &all[..];
                while !rest.is_empty() {
                    let batch = &rest[..rest.len().min(7)];
                    rest = &rest[ring.push(batch).expect("open")..];
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while left.load(Ordering::Relaxed) > 0 {
                    match ring.pop(|_| ()) {
                        Some([value]) => see(value),
                        None => thread::yield_now(),
                    }
                }
            });
        }
        scope.spawn(|| {
            while left.load(Ordering::Relaxed) > 0 {
                match ring.withdraw(|words| words[0] % 5 == 0) {
                    Some([value]) => see(value),
                    None => thread::yield_now(),
                }
            }
        });
    });
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
}

// ---- completions and their signal -----------------------------------------

#[derive(Default)]
struct Flag(AtomicBool);

impl Event for Arc<Flag> {
    fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
    fn clear(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

proptest! {
    #![proptest_config(proptest_config())]

    /// One thread: places are exact, order is kept, and the event is set exactly
    /// while something is unread, from the first watch on.
    #[test]
    fn event_follows_the_queue(
        capacity in 1_u32..10,
        steps in prop::collection::vec((0_usize..4, 0_usize..6), 0..80),
    ) {
        let flag = Arc::new(Flag::default());
        let completions = Completions::new(capacity, Arc::clone(&flag)).unwrap();
        let (mut awaited, mut unread, mut next, mut watched) = (0_usize, VecDeque::new(), 0, false);
        for (kind, amount) in steps {
            match kind {
                0 => {
                    let free = capacity as usize - awaited - unread.len();
                    prop_assert_eq!(completions.reserve(amount), amount.min(free));
                    awaited += amount.min(free);
                }
                1 if awaited > 0 => {
                    completions.complete(&[next; 8]);
                    unread.push_back(next);
                    next += 1;
                    awaited -= 1;
                }
                2 => {
                    let mut read = Vec::new();
                    let count = completions.poll(amount, |_, words| read.push(words[0]));
                    prop_assert_eq!(count, amount.min(unread.len()));
                    prop_assert_eq!(read, unread.drain(..count).collect::<Vec<_>>());
                }
                3 if amount == 0 => {
                    completions.watch();
                    watched = true;
                }
                _ => {
                    let back = amount.min(awaited);
                    completions.release(back);
                    awaited -= back;
                }
            }
            prop_assert_eq!(completions.is_awaiting(), awaited > 0);
            prop_assert_eq!(flag.0.load(Ordering::SeqCst), watched && !unread.is_empty());
        }
    }
}

// ---- engine -----------------------------------------------------------------

type Execute = dyn Fn(&Request) -> Outcome + Send + Sync;
type Populate = dyn Fn(&Request, Range<u64>) -> bool + Send + Sync;

/// A world that a test makes up.
struct World {
    start: Instant,
    /// Nanoseconds, where the test makes time pass; a look at it takes a microsecond.
    time: Option<Arc<AtomicU64>>,
    execute: Box<Execute>,
    populate: Box<Populate>,
    delivered: Sender<(Request, Completion)>,
}

impl Host for World {
    type Plan = ();
    fn is_child(&self) -> bool {
        false
    }
    fn stamp(&self) -> u64 {
        self.now()
    }
    fn now(&self) -> u64 {
        match &self.time {
            Some(time) => time.fetch_add(1000, Ordering::SeqCst),
            None => self.start.elapsed().as_nanos() as u64,
        }
    }
    fn prepare(&self, _request: &Request) {}
    fn populate(&self, request: &Request, part: Range<u64>, _plan: &mut Option<()>) -> u64 {
        if (self.populate)(request, part) { 0 } else { u64::MAX }
    }
    fn execute(&self, request: &Request) -> Outcome {
        (self.execute)(request)
    }
    fn deliver(&self, request: &Request, completion: &Completion) {
        // The test may have stopped listening.
        let _ = self.delivered.send((*request, *completion));
        assert_ne!(request.tag, PANIC_IN_DELIVERY, "as the test wants it");
    }
}

const PANIC_IN_DELIVERY: u64 = u64::MAX;

type Delivered = Receiver<(Request, Completion)>;

/// An engine with its threads, which end with it.
struct Running {
    engine: Arc<Engine<World>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Running {
    fn start(
        workers: usize,
        depth: usize,
        execute: impl Fn(&Request) -> Outcome + Send + Sync + 'static,
    ) -> (Self, Delivered) {
        Self::start_in_time(workers, depth, None, execute)
    }

    fn start_in_time(
        workers: usize,
        depth: usize,
        time: Option<Arc<AtomicU64>>,
        execute: impl Fn(&Request) -> Outcome + Send + Sync + 'static,
    ) -> (Self, Delivered) {
        Self::start_world(workers, depth, time, Box::new(execute), Box::new(|_, _| true))
    }

    fn start_populating(
        workers: usize,
        populate: impl Fn(&Request, Range<u64>) -> bool + Send + Sync + 'static,
        execute: impl Fn(&Request) -> Outcome + Send + Sync + 'static,
    ) -> (Self, Delivered) {
        let time = Some(Arc::default());
        Self::start_world(workers, 64, time, Box::new(execute), Box::new(populate))
    }

    fn start_world(
        workers: usize,
        depth: usize,
        time: Option<Arc<AtomicU64>>,
        execute: Box<Execute>,
        populate: Box<Populate>,
    ) -> (Self, Delivered) {
        let (sender, delivered) = unbounded();
        let start = Instant::now();
        let world = World { start, time, execute, populate, delivered: sender };
        let engine = Arc::new(Engine::new(workers, depth, true, world).unwrap());
        let threads = (0..workers)
            .map(|index| {
                let engine = Arc::clone(&engine);
                thread::spawn(move || engine.work(index))
            })
            .collect();
        (Self { engine, threads }, delivered)
    }

    fn submit(&self, request: Request) {
        assert_eq!(self.engine.submit(&[request.encode()]), Ok(1));
    }

    fn drain(&self) {
        assert!(self.engine.drain(|_| true, || None));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.close();
        for thread in self.threads.drain(..) {
            thread.join().expect("a worker does not panic");
        }
    }
}

/// A door that workers wait at, so that a test knows where they are.
#[derive(Clone)]
struct Door {
    open: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
}

impl Door {
    fn closed() -> Self {
        Self { open: Arc::new(AtomicBool::new(false)), waiting: Arc::new(AtomicUsize::new(0)) }
    }
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.open.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
    fn wait_for(&self, count: usize) {
        while self.waiting.load(Ordering::SeqCst) < count {
            thread::yield_now();
        }
    }
}

#[test]
fn engine_completes_everything_exactly_once() {
    const SUBMITTERS: u64 = 4;
    let each = rounds(40_000) as u64;
    let (running, delivered) = Running::start(3, 256, |_| Outcome::default());
    thread::scope(|scope| {
        for submitter in 0..SUBMITTERS {
            let engine = &running.engine;
            scope.spawn(move || {
                for tag in submitter * each..(submitter + 1) * each {
                    while engine.submit(&[request(tag).encode()]) == Ok(0) {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    running.drain();
    let mut tags: Vec<_> = delivered.try_iter().map(|(request, _)| request.tag).collect();
    tags.sort_unstable();
    assert!(tags.iter().copied().eq(0..SUBMITTERS * each));
    let Snapshot { submitted, queued, running: busy, totals } = running.engine.snapshot();
    assert_eq!((submitted, queued, busy), (SUBMITTERS * each, 0, 0));
    assert_eq!((totals.completed, totals.failed, totals.cancelled), (SUBMITTERS * each, 0, 0));
    assert_eq!(totals.registered_bytes, SUBMITTERS * each * 10);
}

/// A worker that has just gone to sleep hears of the next request.
#[test]
fn engine_wakes_up_each_time() {
    let (running, delivered) = Running::start(2, 8, |_| Outcome::default());
    for tag in 0..rounds(20_000) as u64 {
        running.submit(request(tag));
        assert_eq!(delivered.recv().unwrap().0.tag, tag);
        if tag % 64 == 0 {
            thread::sleep(Duration::from_micros(tag % 100));
        }
    }
}

#[test]
fn engine_cancels_what_is_queued_only() {
    let door = Door::closed();
    let at_door = door.clone();
    let (running, delivered) = Running::start(1, 8, move |_| {
        at_door.pass();
        Outcome::default()
    });
    running.submit(request(1));
    door.wait_for(1);
    running.submit(request(2));
    running.submit(request(3));
    let cancel = |tag| running.engine.cancel(|request| request.tag == tag);
    assert_eq!(cancel(1), Cancel::Running);
    assert_eq!(cancel(2), Cancel::Cancelled);
    let (_, completion) = delivered.try_recv().expect("delivered before cancel returns");
    assert_eq!((completion.tag, completion.outcome.status), (2, libc::ECANCELED));
    assert_eq!(cancel(2), Cancel::NotFound);
    assert_eq!(running.engine.snapshot().queued, 1);
    door.open();
    running.drain();
    assert_eq!(cancel(1), Cancel::NotFound);
    let rest: Vec<_> = delivered.try_iter().map(|(_, c)| (c.tag, c.outcome.status)).collect();
    assert_eq!(rest, [(1, 0), (3, 0)]);
    assert_eq!(running.engine.snapshot().totals.cancelled, 1);
}

#[test]
fn engine_drains_one_pd_while_another_is_busy() {
    let door = Door::closed();
    let at_door = door.clone();
    let (running, _delivered) = Running::start(2, 8, move |request| {
        if request.pd == 1 {
            at_door.pass();
        }
        Outcome::default()
    });
    running.submit(request(0));
    door.wait_for(1);
    running.submit(request(1));
    assert!(running.engine.drain(|request| request.pd == 2, || None));
    assert!(!running.engine.drain(|request| request.pd == 1, || Some(Duration::ZERO)));
    door.open();
    running.drain();
}

/// A transient error is tried again; the worker serves others meanwhile.
#[test]
fn engine_retries_transient_errors() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let time = Arc::new(AtomicU64::new(0));
    let execute = move |request: &Request| match request.tag {
        1 if request.attempts < 2 => Outcome::failed(libc::EAGAIN),
        2 => {
            counted.fetch_add(1, Ordering::SeqCst);
            Outcome::failed(libc::EINTR)
        }
        _ => Outcome::default(),
    };
    let (running, delivered) = Running::start_in_time(1, 8, Some(Arc::clone(&time)), execute);
    running.submit(request(1));
    running.submit(request(2));
    running.submit(request(3));
    let mut order = vec![delivered.recv().unwrap().1];
    while order.len() < 3 {
        time.fetch_add(1_000_000, Ordering::SeqCst);
        order.extend(delivered.recv_timeout(Duration::from_millis(5)).map(|(_, c)| c));
    }
    let order: Vec<_> = order.iter().map(|c| (c.tag, c.outcome.status)).collect();
    assert_eq!(order, [(3, 0), (1, 0), (2, libc::EINTR)]);
    assert_eq!(calls.load(Ordering::SeqCst), u64::from(MAX_ATTEMPTS));
}

/// F6: errors of many requests at once are delivered, none is kept for ever.
#[test]
fn engine_bounds_the_retries() {
    let (running, delivered) = Running::start(2, 1024, |_| Outcome::failed(libc::EAGAIN));
    let count = rounds(1000) as u64;
    for tag in 0..count {
        running.submit(request(tag));
    }
    running.drain();
    assert_eq!(delivered.try_iter().count() as u64, count);
    assert_eq!(running.engine.snapshot().totals.failed, count);
}

/// A request that waits for another attempt can be cancelled, and is when the engine closes.
#[test]
fn engine_cancels_what_waits_for_another_attempt() {
    // Hardly any time passes, so that the attempts do not come to their end.
    let time = Some(Arc::default());
    let (running, delivered) =
        Running::start_in_time(1, 8, time, |_| Outcome::failed(libc::EAGAIN));
    running.submit(request(1));
    while running.engine.cancel(|request| request.tag == 1) != Cancel::Cancelled {
        assert!(delivered.try_recv().is_err(), "five waits are longer than a moment");
    }
    assert_eq!(delivered.recv().unwrap().1.outcome.status, libc::ECANCELED);
    running.submit(request(2));
    drop(running);
    assert_eq!(delivered.iter().count(), 1);
}

/// Of equal ones the one that was submitted first is meant, whatever queue it waits in,
/// and one that waits for another attempt counts as queued.
#[test]
fn engine_cancels_the_oldest() {
    let door = Door::closed();
    let at_door = door.clone();
    // Hardly any time passes, so that the second attempt does not come.
    let time = Some(Arc::default());
    let execute = move |request: &Request| match request.submitted {
        0 => Outcome::failed(libc::EAGAIN),
        _ => {
            at_door.pass();
            Outcome::default()
        }
    };
    let (running, delivered) = Running::start_in_time(1, 8, time, execute);
    let both = [request(1).encode(), Request { submitted: 1, ..request(9) }.encode()];
    assert_eq!(running.engine.submit(&both), Ok(2));
    door.wait_for(1);
    running.submit(Request { hints: Hints::BULK, submitted: 2, ..request(1) });
    running.submit(Request { submitted: 3, ..request(1) });
    running.submit(Request { hints: Hints::URGENT, submitted: 4, ..request(1) });
    for submitted in [0, 2, 3, 4] {
        assert_eq!(running.engine.cancel(|request| request.tag == 1), Cancel::Cancelled);
        assert_eq!(delivered.try_recv().unwrap().0.submitted, submitted);
    }
    assert_eq!(running.engine.cancel(|request| request.tag == 1), Cancel::NotFound);
    door.open();
}

/// F73: a panic is the request's failure, and the pool goes on.
#[test]
fn engine_survives_panics() {
    let (running, delivered) = Running::start(1, 8, |request| {
        assert_ne!(request.tag, 1, "as the test wants it");
        Outcome::default()
    });
    running.submit(request(1));
    running.submit(request(PANIC_IN_DELIVERY));
    running.submit(Request { operation: Operation::Deregister, ..request(1) });
    running.submit(request(3));
    running.drain();
    let statuses: Vec<_> =
        delivered.try_iter().map(|(_, c)| (c.outcome.status, c.outcome.region)).collect();
    // A deregistration that did not happen hands its region back.
    assert_eq!(statuses, [(libc::EIO, 0), (0, 0), (libc::EIO, 0x1000), (0, 0)]);
}

#[test]
fn engine_closes_with_work_queued() {
    let door = Door::closed();
    let at_door = door.clone();
    let (running, delivered) = Running::start(2, 16, move |_| {
        at_door.pass();
        Outcome::default()
    });
    for tag in 0..12 {
        running.submit(request(tag));
    }
    door.wait_for(2);
    running.engine.close();
    assert_eq!(running.engine.submit(&[request(99).encode()]), Err(Closed));
    door.open();
    drop(running);
    let statuses: Vec<_> = delivered.iter().map(|(_, c)| c.outcome.status).collect();
    assert_eq!(statuses.len(), 12);
    assert_eq!(statuses.iter().filter(|&&status| status == 0).count(), 2);
    assert!(statuses.iter().all(|&status| status == 0 || status == libc::ECANCELED));
}

/// After a halt nothing is performed and nothing is delivered.
#[test]
fn engine_halts() {
    let door = Door::closed();
    let at_door = door.clone();
    let (running, delivered) = Running::start(1, 16, move |_| {
        at_door.pass();
        Outcome::default()
    });
    running.submit(request(1));
    running.submit(request(2));
    door.wait_for(1);
    running.engine.halt();
    assert!(!running.engine.is_quiet());
    assert_eq!(running.engine.submit(&[request(3).encode()]), Err(Closed));
    door.open();
    drop(running);
    assert_eq!(delivered.iter().count(), 0);
}

/// The number of requests at work at a time is the number of workers.
#[test]
fn engine_uses_all_workers() {
    let door = Door::closed();
    let at_door = door.clone();
    let (running, _delivered) = Running::start(4, 16, move |_| {
        at_door.pass();
        Outcome::default()
    });
    let batch: Vec<_> = (0..8).map(|tag| request(tag).encode()).collect();
    assert_eq!(running.engine.submit(&batch), Ok(8));
    door.wait_for(4);
    let Snapshot { queued, running: busy, .. } = running.engine.snapshot();
    assert_eq!((queued, busy), (4, 4));
    assert!(running.engine.is_owner_served(1));
    assert!(!running.engine.is_owner_served(2));
    door.open();
    running.drain();
}

// ---- large requests ---------------------------------------------------------

fn large(tag: u64, slices: u64) -> Request {
    let hints = Hints::BULK | Hints::POPULATE;
    let (address, length) = (SLICE / 2, slices * SLICE);
    Request { delivery: Delivery::Queue, hints, address, length, ..request(tag) }
}

/// All of the memory is faulted in, each byte once, and then the call is made.
#[test]
fn large_requests_are_populated_by_all_workers_before_their_call() {
    const SLICES: u64 = 9;
    let parts = Arc::new(Mutex::new(Vec::new()));
    let (noted, seen) = (Arc::clone(&parts), Arc::clone(&parts));
    let door = Door::closed();
    let at_door = door.clone();
    let populate = move |request: &Request, part: Range<u64>| {
        // The first slice goes alone; the others wait for one another.
        if part.start != request.address {
            at_door.pass();
        }
        noted.lock().unwrap().push((part.start, part.end));
        true
    };
    let execute = move |_: &Request| Outcome {
        region: seen.lock().unwrap().len() as u64,
        ..Outcome::default()
    };
    let (running, delivered) = Running::start_populating(3, populate, execute);
    running.submit(large(1, SLICES));
    door.wait_for(3);
    door.open();
    let (_, completion) = delivered.recv().unwrap();
    let mut parts = parts.lock().unwrap().clone();
    // One more than the length has: it does not begin at a multiple of a slice.
    assert_eq!(completion.outcome.region, SLICES + 1);
    assert!(completion.populate_ns > 0 && completion.busy_ns >= completion.populate_ns);
    parts.sort_unstable();
    assert_eq!(parts.first().map(|part| part.0), Some(SLICE / 2));
    assert_eq!(parts.last().map(|part| part.1), Some(SLICE / 2 + SLICES * SLICE));
    assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[0].1 % SLICE == 0));
}

/// Where faulting in is of no use, the call is made at once; and its failure is
/// none of the request.
#[test]
fn large_requests_survive_a_failed_populate() {
    let (running, delivered) = Running::start_populating(
        2,
        |request, _| {
            assert_ne!(request.tag, 2, "as the test wants it");
            false
        },
        |_| Outcome::default(),
    );
    running.submit(large(1, 1000));
    running.submit(large(2, 1000));
    let mut tags = [delivered.recv().unwrap().1.tag, delivered.recv().unwrap().1.tag];
    tags.sort_unstable();
    assert_eq!(tags, [1, 2]);
}

/// A small request comes next after the slice that a worker has, an urgent large
/// one before the other large ones.
#[test]
fn small_and_urgent_requests_overtake_slices() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let (populated, executed) = (Arc::clone(&order), Arc::clone(&order));
    let door = Door::closed();
    let at_door = door.clone();
    let (running, delivered) = Running::start_populating(
        1,
        move |request, _| {
            at_door.pass();
            populated.lock().unwrap().push((request.tag, 's'));
            true
        },
        move |request| {
            executed.lock().unwrap().push((request.tag, 'c'));
            Outcome::default()
        },
    );
    running.submit(Request { address: 0, ..large(1, 2) });
    door.wait_for(1);
    let urgent = large(2, 1);
    running.submit(Request { address: 0, hints: urgent.hints | Hints::URGENT, ..urgent });
    running.submit(request(3));
    running.submit(Request { hints: Hints::URGENT, ..request(4) });
    door.open();
    for _ in 0..4 {
        delivered.recv().unwrap();
    }
    let order = order.lock().unwrap().clone();
    assert_eq!(order, [(1, 's'), (4, 'c'), (3, 'c'), (2, 's'), (2, 'c'), (1, 's'), (1, 'c')],);
}

/// While long calls run, a worker is left for others; they take turns.
#[test]
fn long_calls_leave_a_worker_free() {
    let door = Door::closed();
    let at_door = door.clone();
    let (running, delivered) = Running::start_populating(
        3,
        |_, _| true,
        move |request| {
            if request.hints.contains(Hints::BULK) {
                at_door.pass();
            }
            Outcome::default()
        },
    );
    for tag in 0..5 {
        running.submit(large(tag, 32));
    }
    door.wait_for(2);
    running.submit(request(9));
    assert_eq!(delivered.recv().unwrap().1.tag, 9);
    assert_eq!(door.waiting.load(Ordering::SeqCst), 2);
    door.open();
    assert_eq!(delivered.iter().take(5).count(), 5);
}

/// However many small requests come, a large one gets its turns.
#[test]
fn small_requests_do_not_starve_large_ones() {
    let time = Arc::new(AtomicU64::new(0));
    let passes = Arc::clone(&time);
    let execute = move |_: &Request| {
        passes.fetch_add(100_000, Ordering::SeqCst);
        Outcome::default()
    };
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let (running, delivered) = Running::start_in_time(1, 64, Some(time), execute);
    running.submit(large(1000, 3));
    let engine = Arc::clone(&running.engine);
    let flood = thread::spawn(move || {
        while !is_done.load(Ordering::SeqCst) {
            if engine.submit(&[request(1).encode()]) == Ok(0) {
                thread::yield_now();
            }
        }
    });
    while delivered.recv().unwrap().1.tag != 1000 {}
    done.store(true, Ordering::SeqCst);
    flood.join().unwrap();
}

/// A large request can be cancelled while it is queued; closing cancels it before its call.
#[test]
fn large_requests_are_cancelled_while_queued() {
    let door = Door::closed();
    let at_door = door.clone();
    let (running, delivered) = Running::start_populating(
        1,
        move |_, _| {
            at_door.pass();
            true
        },
        |_| Outcome::default(),
    );
    for tag in 1..=4 {
        running.submit(large(tag, 2));
    }
    door.wait_for(1);
    let cancel = |tag| running.engine.cancel(|request| request.tag == tag);
    assert_eq!(cancel(1), Cancel::Running);
    assert_eq!(cancel(3), Cancel::Cancelled);
    let Snapshot { queued, running: busy, .. } = running.engine.snapshot();
    assert_eq!((queued, busy), (2, 1));
    assert!(!running.engine.drain(|request| request.tag == 1, || Some(Duration::ZERO)));
    running.engine.close();
    door.open();
    drop(running);
    let mut ends: Vec<_> = delivered.iter().map(|(_, c)| (c.tag, c.outcome.status)).collect();
    ends.sort_unstable();
    let cancelled = libc::ECANCELED;
    assert_eq!(ends, [1, 2, 3, 4].map(|tag| (tag, cancelled)));
}
