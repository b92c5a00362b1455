//! A bounded queue of fixed-size records, many producers, many consumers.
//!
//! Dmitry Vyukov's bounded queue, with three things that requests need: many
//! records are claimed with one compare-exchange; a record can be withdrawn
//! while it waits; a consumer can publish what it took before the slot is free,
//! so that somebody who looks for a record in the queue first and at the
//! consumers then cannot miss it.
//!
//! A record is `W` words. They are atomics, so no unsafe code is needed; on the
//! machines at hand a relaxed access is a plain one.

#![forbid(unsafe_code)]

use super::sync::atomic::{AtomicU64, Ordering};
use crate::slots::{OutOfMemory, Slot, Slots};
use crossbeam_utils::CachePadded;
use std::ops::Range;

/// Set in the tail when no more records are taken.
const CLOSED: u64 = 1 << 63;

/// What a slot is in its lap (how often the ring went round), in the order of its
/// life: the low bits of its state. A slot that is all zero is empty in the first.
const EMPTY: u64 = 0;
const READY: u64 = 1;
const WITHDRAWN: u64 = 2;
const TAKEN: u64 = 3;
const LAP_SHIFT: u32 = 2;

impl<const W: usize> Slot<W> {
    fn write(&self, words: &[u64; W]) {
        for (to, from) in self.words.iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    fn read(&self) -> [u64; W] {
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }
}

/// What a consumer finds at the position that it takes for the next.
enum Stage {
    /// No record yet; the slot may still belong to a slow consumer of the lap before.
    Unwritten,
    /// A record to take out, or to skip if it was withdrawn.
    Waiting,
    /// Another consumer has it: the head has moved on.
    Passed,
}

/// The queue takes no more records.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

/// See the module.
pub struct Ring<const W: usize> {
    /// The next position to write, and [`CLOSED`].
    tail: CachePadded<AtomicU64>,
    /// The next position to read.
    head: CachePadded<AtomicU64>,
    slots: Slots<W>,
    capacity_shift: u32,
}

impl<const W: usize> Ring<W> {
    /// A queue of at least `capacity` records, rounded up to a power of two.
    pub fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        let capacity = capacity.next_power_of_two();
        Ok(Self {
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            slots: Slots::new(capacity)?,
            capacity_shift: capacity.trailing_zeros(),
        })
    }

    /// How many records it can hold.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// How many records were ever put in.
    pub fn pushed(&self) -> u64 {
        self.tail.load(Ordering::Acquire) & !CLOSED
    }

    /// Puts in as many records of the front of `batch` as there is room for,
    /// one after another, and says how many.
    pub fn push(&self, batch: &[[u64; W]]) -> Result<usize, Closed> {
        loop {
            let tail = self.tail.load(Ordering::Relaxed);
            if tail & CLOSED != 0 {
                return Err(Closed);
            }
            let room = self.room_from(tail, batch.len());
            if room == 0 {
                if self.tail.load(Ordering::Relaxed) == tail {
                    return Ok(0);
                }
                continue;
            }
            let claimed = self.tail.compare_exchange_weak(
                tail,
                tail + room as u64,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if claimed.is_ok() {
                self.fill(tail, &batch[..room]);
                return Ok(room);
            }
        }
    }

    /// Puts in one record for which the caller knows that there is room, or
    /// that there will be as soon as a consumer has finished reading a slot.
    pub fn push_reserved(&self, record: &[u64; W]) {
        while self.push(std::slice::from_ref(record)) == Ok(0) {
            super::sync::thread::yield_now();
        }
    }

    /// Takes out the oldest record. `publish` sees it before its slot is free.
    pub fn pop(&self, publish: impl Fn(&[u64; W])) -> Option<[u64; W]> {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let slot = self.slot(head);
            match self.stage(head) {
                Stage::Unwritten => return None,
                Stage::Passed => continue,
                Stage::Waiting => {}
            }
            let claimed = self.head.compare_exchange_weak(
                head,
                head + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if claimed.is_err() {
                continue;
            }
            // Only withdraw() can still change the slot.
            let taken = slot.state.compare_exchange(
                self.state(head, READY),
                self.state(head, TAKEN),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            let record = taken.is_ok().then(|| slot.read());
            if let Some(record) = &record {
                publish(record);
            }
            slot.state.store(self.state(head + self.slots.len() as u64, EMPTY), Ordering::Release);
            if record.is_some() {
                return record;
            }
        }
    }

    /// Whether a producer has claimed the next slot to read and is about to fill
    /// it. For a consumer that found nothing.
    pub fn is_being_filled(&self) -> bool {
        self.pushed() > self.head.load(Ordering::Acquire)
    }

    /// Whether a consumer would find nothing.
    pub fn is_empty(&self) -> bool {
        loop {
            match self.stage(self.head.load(Ordering::Acquire)) {
                Stage::Unwritten => return true,
                Stage::Waiting => return false,
                Stage::Passed => {}
            }
        }
    }

    /// The oldest waiting record that `matches`, or a mixture with the one after it in
    /// its slot, if it is just leaving: withdraw() will tell.
    pub fn oldest(&self, matches: impl Fn(&[u64; W]) -> bool) -> Option<[u64; W]> {
        self.positions().find_map(|position| {
            let slot = self.slot(position);
            let is_waiting = slot.state.load(Ordering::Acquire) == self.state(position, READY);
            is_waiting.then(|| slot.read()).filter(&matches)
        })
    }

    /// Withdraws the oldest waiting record that `matches`: no consumer will
    /// see it. It holds its slot until a consumer comes by.
    pub fn withdraw(&self, matches: impl Fn(&[u64; W]) -> bool) -> Option<[u64; W]> {
        self.positions().find_map(|position| {
            let slot = self.slot(position);
            let ready = self.state(position, READY);
            if slot.state.load(Ordering::Acquire) != ready {
                return None;
            }
            // If the exchange succeeds the slot was ready all the time, so
            // the words that were read are those of this record.
            let record = slot.read();
            let withdrawn = matches(&record)
                && slot
                    .state
                    .compare_exchange(
                        ready,
                        self.state(position, WITHDRAWN),
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok();
            withdrawn.then_some(record)
        })
    }

    /// How many records that match are waiting or just being taken out.
    pub fn count(&self, matches: impl Fn(&[u64; W]) -> bool) -> usize {
        self.held(matches).count()
    }

    /// Whether there is one, the youngest first: of many that are waiting the
    /// first look finds it.
    pub fn any(&self, matches: impl Fn(&[u64; W]) -> bool) -> bool {
        self.held(matches).next_back().is_some()
    }

    /// The positions of records that match and are waiting or just being taken out.
    fn held(&self, matches: impl Fn(&[u64; W]) -> bool) -> impl DoubleEndedIterator<Item = u64> {
        self.positions().filter(move |&position| {
            let slot = self.slot(position);
            let before = slot.state.load(Ordering::Acquire);
            let waits =
                before == self.state(position, READY) || before == self.state(position, TAKEN);
            waits && matches(&slot.read())
        })
    }

    /// Takes no more records; what is in it can still be taken out.
    pub fn close(&self) {
        self.tail.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Whether it is closed and all that was in it has been taken out.
    pub fn is_finished(&self) -> bool {
        let tail = self.tail.load(Ordering::Acquire);
        tail & CLOSED != 0 && self.head.load(Ordering::Acquire) == tail & !CLOSED
    }

    /// Positions that may hold a record. A consumer that has claimed one but
    /// not freed its slot has moved the head already, so start a lap before the
    /// tail.
    fn positions(&self) -> Range<u64> {
        let tail = self.pushed();
        tail.saturating_sub(self.slots.len() as u64)..tail
    }

    /// How many slots from `tail` on can be written, `limit` at most.
    fn room_from(&self, tail: u64, limit: usize) -> usize {
        (tail..tail + limit as u64)
            .take_while(|&position| {
                self.slot(position).state.load(Ordering::Acquire) == self.state(position, EMPTY)
            })
            .count()
    }

    /// Writes records to slots that are the caller's.
    fn fill(&self, from: u64, batch: &[[u64; W]]) {
        for (position, record) in (from..).zip(batch) {
            let slot = self.slot(position);
            slot.write(record);
            slot.state.store(self.state(position, READY), Ordering::Release);
        }
    }

    /// What a consumer finds at a position.
    fn stage(&self, position: u64) -> Stage {
        let state = self.slot(position).state.load(Ordering::Acquire);
        if state <= self.state(position, EMPTY) {
            Stage::Unwritten
        } else if state <= self.state(position, WITHDRAWN) {
            Stage::Waiting
        } else {
            Stage::Passed
        }
    }

    fn slot(&self, position: u64) -> &Slot<W> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    fn state(&self, position: u64, what: u64) -> u64 {
        (position >> self.capacity_shift) << LAP_SHIFT | what
    }
}
