//! Every interleaving of the lock-free protocols, as far as the preemption
//! bound goes. `RUSTFLAGS="--cfg loom" cargo test --release --lib loom`

use super::bulk::SLICE;
use super::completions::Completions;
use super::engine::{Cancel, Engine, Host};
use super::numbers::Numbers;
use super::request::{Completion, Delivery, Hints, Operation, Outcome, Request, Words};
use super::ring::Ring;
use super::signal::Event;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use loom::thread;
use std::ops::Range;

fn model(body: impl Fn() + Send + Sync + 'static) {
    model_bounded(2, body);
}

/// Every interleaving in which threads lose their CPU so many times at most.
fn model_bounded(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(preemptions);
    }
    builder.max_branches = 10_000;
    builder.check(body);
}

fn pop(ring: &Ring<1>) -> Option<u64> {
    ring.pop(|_| ()).map(|[word]| word)
}

#[test]
fn ring_two_producers_one_consumer() {
    model(|| {
        let ring = Arc::new(Ring::<1>::new(2).unwrap());
        let producers: Vec<_> = [1, 2]
            .map(|word| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || assert_eq!(ring.push(&[[word]]), Ok(1)))
            })
            .into();
        let mut seen: Vec<_> = pop(&ring).into_iter().collect();
        for producer in producers {
            producer.join().unwrap();
        }
        seen.extend(std::iter::from_fn(|| pop(&ring)));
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn ring_batch_to_two_consumers_in_a_full_ring() {
    model(|| {
        let ring = Arc::new(Ring::<1>::new(2).unwrap());
        assert_eq!(ring.push(&[[1], [2], [3]]), Ok(2));
        let consumer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || pop(&ring))
        };
        let mut seen: Vec<_> = pop(&ring).into_iter().collect();
        let pushed = ring.push(&[[3]]).unwrap();
        seen.extend(consumer.join().unwrap());
        seen.extend(std::iter::from_fn(|| pop(&ring)));
        seen.sort_unstable();
        assert_eq!(seen.len(), 2 + pushed);
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
    });
}

#[test]
fn ring_withdrawn_or_popped_but_not_both() {
    model(|| {
        let ring = Arc::new(Ring::<1>::new(2).unwrap());
        assert_eq!(ring.push(&[[1], [2]]), Ok(2));
        let consumer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || [pop(&ring), pop(&ring)])
        };
        let withdrawn = ring.withdraw(|words| words[0] == 1).is_some();
        let popped: Vec<_> = consumer.join().unwrap().into_iter().flatten().collect();
        assert_eq!(popped, if withdrawn { vec![2] } else { vec![1, 2] });
        assert!(ring.is_empty());
    });
}

#[test]
fn ring_closed_or_pushed() {
    model(|| {
        let ring = Arc::new(Ring::<1>::new(2).unwrap());
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(&[[1]]).is_ok())
        };
        ring.close();
        let pushed = producer.join().unwrap();
        assert_eq!(ring.is_finished(), !pushed);
        assert_eq!(pop(&ring).is_some(), pushed);
        assert!(ring.is_finished());
    });
}

/// A record moves from the queue to its consumer: who looks in this order finds it.
#[test]
fn ring_publishes_before_the_slot_is_free() {
    model(|| {
        let ring = Arc::new(Ring::<1>::new(2).unwrap());
        let taken = Arc::new(AtomicU32::new(0));
        assert_eq!(ring.push(&[[7]]), Ok(1));
        let consumer = {
            let (ring, taken) = (Arc::clone(&ring), Arc::clone(&taken));
            thread::spawn(move || ring.pop(|_| taken.store(1, Ordering::Release)))
        };
        let found = ring.any(|words| words[0] == 7) || taken.load(Ordering::Acquire) == 1;
        assert!(found);
        consumer.join().unwrap();
    });
}

/// An event that can be looked at. Setting and clearing an eventfd takes its
/// lock in the kernel, so each sees what came before the other.
#[derive(Default)]
struct Flag {
    level: AtomicBool,
    edge: AtomicBool,
}

struct ArcFlag(Arc<Flag>);

impl Event for ArcFlag {
    fn set(&self) {
        self.0.level.swap(true, Ordering::AcqRel);
        self.0.edge.swap(true, Ordering::AcqRel);
    }
    fn clear(&self) {
        self.0.level.swap(false, Ordering::AcqRel);
    }
}

fn queue(capacity: u32) -> (Arc<Completions<ArcFlag>>, Arc<Flag>) {
    let flag = Arc::new(Flag::default());
    let completions = Arc::new(Completions::new(capacity, ArcFlag(Arc::clone(&flag))).unwrap());
    assert_eq!(completions.reserve(usize::MAX), capacity as usize);
    (completions, flag)
}

/// Readable exactly while something is unread, once everybody has returned.
fn check_level(completions: &Completions<ArcFlag>, flag: &Flag, unread: usize) {
    assert_eq!(flag.level.load(Ordering::SeqCst), unread > 0);
    assert_eq!(completions.poll(usize::MAX, |_, _| ()), unread);
    assert!(!flag.level.load(Ordering::SeqCst));
}

#[test]
fn signal_no_completion_is_missed() {
    model(|| {
        let (completions, flag) = queue(2);
        completions.watch();
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let completions = Arc::clone(&completions);
                thread::spawn(move || completions.complete(&[0; 8]))
            })
            .collect();
        let read = completions.poll(2, |_, _| ());
        for producer in producers {
            producer.join().unwrap();
        }
        check_level(&completions, &flag, 2 - read);
    });
}

#[test]
fn signal_two_pollers() {
    model(|| {
        let (completions, flag) = queue(2);
        completions.watch();
        completions.complete(&[0; 8]);
        let poller = {
            let completions = Arc::clone(&completions);
            thread::spawn(move || completions.poll(1, |_, _| ()))
        };
        let producer = {
            let completions = Arc::clone(&completions);
            thread::spawn(move || completions.complete(&[0; 8]))
        };
        let mut read = completions.poll(1, |_, _| ());
        read += poller.join().unwrap();
        producer.join().unwrap();
        check_level(&completions, &flag, 2 - read);
    });
}

#[test]
fn signal_wakes_a_sleeper() {
    for watched in [false, true] {
        model(move || {
            let (completions, _flag) = queue(1);
            if watched {
                completions.watch();
            }
            let sleeper = {
                let completions = Arc::clone(&completions);
                thread::spawn(move || {
                    while completions.poll(1, |_, _| ()) == 0 {
                        completions.sleep(None);
                    }
                })
            };
            completions.complete(&[0; 8]);
            sleeper.join().unwrap();
        });
    }
}

/// Who waits for edges reads until nothing is left: what comes then makes an edge.
#[test]
fn signal_makes_an_edge_for_what_is_left() {
    model(|| {
        let (completions, flag) = queue(2);
        completions.watch();
        completions.complete(&[0; 8]);
        flag.edge.swap(false, Ordering::AcqRel);
        let producer = {
            let completions = Arc::clone(&completions);
            thread::spawn(move || completions.complete(&[0; 8]))
        };
        // Less than was asked for: nothing is left.
        let read = completions.poll(2, |_, _| ());
        producer.join().unwrap();
        assert!(read == 2 || flag.edge.load(Ordering::Acquire));
    });
}

#[test]
fn signal_watched_while_completions_come() {
    model(|| {
        let (completions, flag) = queue(1);
        let producer = {
            let completions = Arc::clone(&completions);
            thread::spawn(move || completions.complete(&[0; 8]))
        };
        completions.watch();
        producer.join().unwrap();
        check_level(&completions, &flag, 1);
    });
}

/// A world that counts.
#[derive(Default)]
struct Ledger {
    populated: AtomicUsize,
    executed: AtomicUsize,
    delivered: AtomicUsize,
    cancelled: AtomicUsize,
}

impl Host for Ledger {
    type Plan = ();
    fn now(&self) -> u64 {
        0
    }
    fn stamp(&self) -> u64 {
        0
    }
    fn is_child(&self) -> bool {
        false
    }
    fn prepare(&self, _request: &Request) {}
    fn populate(&self, _request: &Request, _part: Range<u64>, _plan: &mut Option<()>) -> u64 {
        self.populated.fetch_add(1, Ordering::SeqCst);
        0
    }
    fn execute(&self, _request: &Request) -> Outcome {
        self.executed.fetch_add(1, Ordering::SeqCst);
        Outcome::default()
    }
    fn deliver(&self, _request: &Request, completion: &Completion) {
        let counter = match completion.outcome.status {
            0 => &self.delivered,
            _ => &self.cancelled,
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

fn request(tag: u64) -> Words {
    Request {
        operation: Operation::Register,
        delivery: Delivery::Callback,
        hints: Hints::NONE,
        attempts: 0,
        policy: 0,
        access: 0,
        owner: 1,
        tag,
        pd: 1,
        address: 0,
        length: 0,
        iova: 0,
        submitted: 0,
    }
    .encode()
}

fn engine(workers: usize) -> Arc<Engine<Ledger>> {
    Arc::new(Engine::new(workers, 2, false, Ledger::default()).unwrap())
}

fn start(engine: &Arc<Engine<Ledger>>, index: usize) -> thread::JoinHandle<()> {
    let engine = Arc::clone(engine);
    thread::spawn(move || engine.work(index))
}

fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::SeqCst)
}

/// The worker may be about to sleep when the request comes: it must wake up.
#[test]
fn engine_wakes_its_worker() {
    model(|| {
        let engine = engine(1);
        let worker = start(&engine, 0);
        assert_eq!(engine.submit(&[request(1)]), Ok(1));
        assert!(engine.drain(|_| true, || None));
        assert_eq!(count(&engine.host().delivered), 1);
        engine.close();
        worker.join().unwrap();
    });
}

#[test]
fn engine_two_workers_two_requests() {
    model_bounded(1, || {
        let engine = engine(2);
        let workers = [start(&engine, 0), start(&engine, 1)];
        assert_eq!(engine.submit(&[request(1), request(2)]), Ok(2));
        assert!(engine.drain(|_| true, || None));
        assert_eq!(count(&engine.host().delivered), 2);
        engine.close();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn engine_closed_while_a_request_comes() {
    model(|| {
        let engine = engine(1);
        let worker = start(&engine, 0);
        let submitter = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.submit(&[request(1)]).unwrap_or(0))
        };
        engine.close();
        let accepted = submitter.join().unwrap();
        worker.join().unwrap();
        let host = engine.host();
        assert_eq!(count(&host.delivered) + count(&host.cancelled), accepted);
    });
}

#[test]
fn engine_cancelled_or_performed() {
    model(|| {
        let engine = engine(1);
        assert_eq!(engine.submit(&[request(1)]), Ok(1));
        let worker = start(&engine, 0);
        let found = engine.cancel(|request| request.tag == 1);
        engine.close();
        worker.join().unwrap();
        let host = engine.host();
        assert_eq!(count(&host.delivered) + count(&host.cancelled), 1);
        match found {
            Cancel::Cancelled => assert_eq!(count(&host.executed), 0),
            Cancel::Running | Cancel::NotFound => {}
        }
    });
}

/// Nothing begins once a halted engine was seen quiet.
#[test]
fn engine_halted_is_quiet_for_good() {
    model(|| {
        let engine = engine(1);
        assert_eq!(engine.submit(&[request(1)]), Ok(1));
        let worker = start(&engine, 0);
        engine.halt();
        let quiet = engine.is_quiet();
        let executed = count(&engine.host().executed);
        worker.join().unwrap();
        if quiet {
            assert_eq!(count(&engine.host().executed), executed);
        }
    });
}

/// What a drain has waited for is over.
#[test]
fn engine_drained_means_delivered() {
    model(|| {
        let engine = engine(1);
        assert_eq!(engine.submit(&[request(1)]), Ok(1));
        let worker = start(&engine, 0);
        assert!(engine.drain(|request| request.pd == 1, || None));
        assert_eq!(count(&engine.host().delivered), 1);
        engine.close();
        worker.join().unwrap();
    });
}

fn large(tag: u64, slices: u64) -> [u64; 8] {
    let hints = Hints::BULK | Hints::POPULATE;
    let length = slices * SLICE;
    Request { hints, length, ..Request::decode(&request(tag)) }.encode()
}

/// The slices of a large request are shared by workers; its call comes after them.
#[test]
fn engine_two_workers_share_a_large_request() {
    model_bounded(1, || {
        let engine = engine(2);
        let workers = [start(&engine, 0), start(&engine, 1)];
        assert_eq!(engine.submit(&[large(1, 2)]), Ok(1));
        assert!(engine.drain(|_| true, || None));
        let host = engine.host();
        assert_eq!((count(&host.populated), count(&host.delivered)), (2, 1));
        engine.close();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

/// A large request is seen all the way: drained means delivered.
#[test]
fn engine_drains_a_large_request() {
    model(|| {
        let engine = engine(1);
        assert_eq!(engine.submit(&[large(1, 1)]), Ok(1));
        let worker = start(&engine, 0);
        assert!(engine.drain(|request| request.pd == 1, || None));
        assert_eq!(count(&engine.host().delivered), 1);
        engine.close();
        worker.join().unwrap();
    });
}

/// Who has completed finds it readable, also past a slower producer.
#[test]
fn completions_can_be_read_once_completed() {
    model(|| {
        let (completions, _flag) = queue(2);
        let other = {
            let completions = Arc::clone(&completions);
            thread::spawn(move || completions.complete(&[1; 8]))
        };
        completions.complete(&[2; 8]);
        let mut found = false;
        completions.poll(2, |_, words| found |= words[0] == 2);
        assert!(found);
        other.join().unwrap();
    });
}

/// Each gets a number that stands for its own value, and nobody sees half of one.
#[test]
fn numbers_of_two_threads() {
    fn bring(numbers: &Numbers<2, 3>, value: u64) {
        let number = numbers.number(&[value, value]).unwrap();
        assert_eq!(numbers.value(number), Some([value, value]));
    }
    model(|| {
        let numbers = Arc::new(Numbers::<2, 3>::new());
        let other = {
            let numbers = Arc::clone(&numbers);
            thread::spawn(move || {
                bring(&numbers, 1);
                bring(&numbers, 2);
            })
        };
        bring(&numbers, 2);
        for value in (0..3).filter_map(|number| numbers.value(number)) {
            assert!(value == [1, 1] || value == [2, 2]);
        }
        other.join().unwrap();
    });
}
