//! The regions whose deregistration is under way, so that none is posted twice. F32.
//!
//! A set of words without locks: [`enter`](Underway::enter) succeeds for one of
//! those who bring the same word, until [`leave`](Underway::leave). A word has two
//! buckets where it may be, and goes into the emptier one. To enter it, a thread
//! claims a free slot, makes a full fence, and then looks at all slots where the
//! same word may be. Of two threads that do so at once, one at least sees the
//! other's claim; and slots have an order: the claim in the lower one takes the
//! other away.
//!
//! The set grows by levels, when engines are made. A level never goes away, since a
//! word may be in it.

#![forbid(unsafe_code)]

use super::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use super::sync::{Mutex, lock};
use std::collections::TryReserveError;
use std::sync::OnceLock;

/// What the low bits of a slot say of the word in it.
const STATE_MASK: u64 = 3;
/// Somebody enters it and does not know yet whether others do.
const CLAIMED: u64 = 1;
/// It is in the set.
const ENTERED: u64 = 2;
/// Another was better; who claimed the slot will free it.
const LOST: u64 = 3;

/// As many slots as a line of the cache has; for loom as few as will do.
const WIDTH: usize = if cfg!(loom) { 1 } else { 8 };
/// The first level has so many slots at least; few for those who look at each step.
const LEAST_SLOTS: usize = match () {
    () if cfg!(loom) => 2,
    () if cfg!(miri) => 64,
    () => 1024,
};
/// Each level is as large as all before it, so no memory has room for more.
const LEVELS: usize = 32;

#[repr(align(64))]
struct Bucket([AtomicU64; WIDTH]);

struct Level {
    buckets: Box<[Bucket]>,
}

impl Level {
    fn new(slots: usize) -> Result<Self, TryReserveError> {
        let count = slots.div_ceil(WIDTH).next_power_of_two();
        let mut buckets = Vec::new();
        buckets.try_reserve_exact(count)?;
        buckets.extend((0..count).map(|_| Bucket(std::array::from_fn(|_| AtomicU64::new(0)))));
        Ok(Self { buckets: buckets.into_boxed_slice() })
    }

    fn slots(&self) -> usize {
        self.buckets.len() * WIDTH
    }

    /// The slots of the two buckets of a word, which may be the same bucket, with
    /// their numbers.
    fn homes(&self, word: u64) -> [impl Iterator<Item = (usize, &AtomicU64)>; 2] {
        // Fibonacci hashing: the upper bits of the product are the good ones.
        let hash = (word >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [hash >> 44, hash >> 24].map(|hash| {
            let bucket = hash as usize & (self.buckets.len() - 1);
            (bucket * WIDTH..).zip(&self.buckets[bucket].0)
        })
    }

    /// Claims a free slot for a word.
    fn claim(&self, word: u64) -> Option<usize> {
        let is_free = |slot: &AtomicU64| slot.load(Ordering::Relaxed) == 0;
        let [first, second] = self.homes(word).map(|home| home.filter(|(_, s)| is_free(s)).count());
        let [one, other] = self.homes(word);
        let (emptier, fuller) = if first >= second { (one, other) } else { (other, one) };
        emptier.chain(fuller).find_map(|(number, slot)| {
            let claimed = is_free(slot)
                && slot
                    .compare_exchange(0, word | CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            claimed.then_some(number)
        })
    }
}

/// Where a word is in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    level: usize,
    slot: usize,
}

impl Place {
    const LEVEL_SHIFT: u32 = 58;

    /// As a word.
    pub fn encode(self) -> u64 {
        (self.level as u64) << Self::LEVEL_SHIFT | self.slot as u64
    }

    /// From the word that [`encode`](Self::encode) made.
    pub fn decode(word: u64) -> Self {
        Self {
            level: (word >> Self::LEVEL_SHIFT) as usize,
            slot: (word & ((1 << Self::LEVEL_SHIFT) - 1)) as usize,
        }
    }
}

/// Why a word was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is in the set.
    Known,
    /// There is no room where it could be.
    Full,
}

/// See the module.
pub struct Underway {
    levels: [OnceLock<Level>; LEVELS],
    /// How many of them are set: the first ones.
    count: AtomicUsize,
    /// How many words may be in it at a time.
    promised: Mutex<usize>,
}

impl Default for Underway {
    fn default() -> Self {
        Self {
            levels: [const { OnceLock::new() }; LEVELS],
            count: AtomicUsize::new(0),
            promised: Mutex::new(0),
        }
    }
}

impl Underway {
    /// Makes room for so many more words.
    pub fn promise(&self, words: usize) -> Result<(), TryReserveError> {
        let mut promised = lock(&self.promised);
        let total = *promised + words;
        let slots: usize = self.levels().map(Level::slots).sum();
        // With half of the slots in use, both buckets of a word are hardly ever full.
        let wanted = total.saturating_mul(2).max(LEAST_SLOTS);
        let count = self.count.load(Ordering::Acquire);
        if slots < wanted && count < LEVELS {
            let level = Level::new(slots.max(wanted - slots))?;
            // Only who holds the lock sets it, so it was not set yet.
            let _ = self.levels[count].set(level);
            self.count.store(count + 1, Ordering::Release);
        }
        *promised = total;
        Ok(())
    }

    /// So many words less will be in it.
    pub fn withdraw_promise(&self, words: usize) {
        *lock(&self.promised) -= words;
    }

    /// Puts a word in, whose two low bits are zero and which is not zero itself.
    pub fn enter(&self, word: u64) -> Result<Place, Refused> {
        debug_assert!(word != 0 && word & STATE_MASK == 0);
        let place = self.claim(word).ok_or(Refused::Full)?;
        // First claimed, then looked: see the module.
        fence(Ordering::SeqCst);
        if self.outdoes_all(word, place) && self.settle(word, place) {
            return Ok(place);
        }
        self.leave(place);
        Err(Refused::Known)
    }

    /// Takes a word out.
    pub fn leave(&self, place: Place) {
        if let Some(slot) = self.slot(place) {
            slot.store(0, Ordering::Release);
        }
    }

    fn claim(&self, word: u64) -> Option<Place> {
        // The newest is the largest.
        (0..self.count.load(Ordering::Acquire)).rev().find_map(|level| {
            let slot = self.levels[level].get()?.claim(word)?;
            Some(Place { level, slot })
        })
    }

    /// Whether nobody else has entered the word, or is about to with a better claim.
    fn outdoes_all(&self, word: u64, own: Place) -> bool {
        self.levels().enumerate().all(|(level, slots)| {
            slots.homes(word).into_iter().flatten().all(|(number, slot)| {
                let other = Place { level, slot: number };
                other == own || outdoes(word, own < other, slot)
            })
        })
    }

    /// Enters what was claimed, unless a better claim has taken it away.
    fn settle(&self, word: u64, place: Place) -> bool {
        self.slot(place).is_some_and(|slot| {
            slot.compare_exchange(
                word | CLAIMED,
                word | ENTERED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
        })
    }

    fn levels(&self) -> impl Iterator<Item = &Level> {
        self.levels[..self.count.load(Ordering::Acquire)].iter().filter_map(OnceLock::get)
    }

    fn slot(&self, place: Place) -> Option<&AtomicU64> {
        let level = self.levels.get(place.level)?.get()?;
        level.buckets.get(place.slot / WIDTH)?.0.get(place.slot % WIDTH)
    }
}

/// Whether the word in that slot, if it is the same, gives way.
fn outdoes(word: u64, is_better: bool, slot: &AtomicU64) -> bool {
    let mut found = slot.load(Ordering::Acquire);
    while is_better && found == word | CLAIMED {
        match slot.compare_exchange(found, word | LOST, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(now) => found = now,
        }
    }
    found != word | CLAIMED && found != word | ENTERED
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    fn with_room(words: usize) -> Underway {
        let underway = Underway::default();
        underway.promise(words).unwrap();
        underway
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enter(u64),
        Leave(u64),
        Promise(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1_u64..200).prop_map(|n| Step::Enter(n << 6)),
            4 => (1_u64..200).prop_map(|n| Step::Leave(n << 6)),
            1 => (1..3 * LEAST_SLOTS).prop_map(Step::Promise),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 256 }, failure_persistence: None, ..Default::default()
        })]

        /// One thread: a set, wherever it has grown meanwhile.
        #[test]
        fn is_a_set(steps in prop::collection::vec(step(), 0..200)) {
            let underway = with_room(1);
            let mut model = HashMap::new();
            for step in steps {
                match step {
                    Step::Enter(word) if model.contains_key(&word) => {
                        prop_assert_eq!(underway.enter(word), Err(Refused::Known));
                    }
                    Step::Enter(word) => {
                        let place = underway.enter(word).expect("there is room");
                        prop_assert_eq!(Place::decode(place.encode()), place);
                        model.insert(word, place);
                    }
                    Step::Leave(word) => {
                        if let Some(place) = model.remove(&word) {
                            underway.leave(place);
                        }
                    }
                    Step::Promise(words) => prop_assert!(underway.promise(words).is_ok()),
                }
            }
        }
    }

    /// As many as were promised have room, and some engine may come later.
    #[test]
    fn keeps_its_promise() {
        let total: u64 = if cfg!(miri) { 200 } else { 40_000 };
        let underway = with_room(total as usize / 4);
        let mut places = Vec::new();
        for n in 1..=total {
            if n == total / 4 + 1 {
                underway.promise(3 * total as usize / 4).unwrap();
            }
            // As far apart as the regions of an allocator are.
            places.push(underway.enter(0x7f00_0000_0000 + n * 96).expect("there is room"));
        }
        for n in 1..=total {
            assert_eq!(underway.enter(0x7f00_0000_0000 + n * 96), Err(Refused::Known));
        }
        places.into_iter().for_each(|place| underway.leave(place));
        assert!(underway.levels().all(|level| {
            level.buckets.iter().flat_map(|b| &b.0).all(|slot| slot.load(Ordering::Relaxed) == 0)
        }));
    }

    /// A set that is full says so, and has room again.
    #[test]
    fn full() {
        let underway = with_room(1);
        let mut entered: Vec<_> = (1..=2 * LEAST_SLOTS as u64)
            .map(|n| underway.enter(n << 6))
            .take_while(|entered| *entered != Err(Refused::Full))
            .collect();
        assert!(entered.len() > LEAST_SLOTS / 2 && entered.len() <= LEAST_SLOTS);
        let refused = (entered.len() as u64 + 1) << 6;
        assert_eq!(underway.enter(refused), Err(Refused::Full));
        entered.drain(..).for_each(|place| underway.leave(place.expect("entered")));
        assert!(underway.enter(refused).is_ok());
    }

    /// Many threads: a word is never in the set twice, and one of those who bring
    /// the same always succeeds.
    #[test]
    fn one_at_a_time() {
        const WORDS: usize = 4;
        let underway = with_room(WORDS);
        let inside: [AtomicU32; WORDS] = std::array::from_fn(|_| AtomicU32::new(0));
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let entered: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut entered = 0;
                        for round in 0..rounds {
                            let word = round % WORDS;
                            if let Ok(place) = underway.enter((word as u64 + 1) << 6) {
                                assert_eq!(inside[word].fetch_add(1, Ordering::Relaxed), 0);
                                inside[word].fetch_sub(1, Ordering::Relaxed);
                                underway.leave(place);
                                entered += 1;
                            }
                        }
                        entered
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no word was in twice")).sum()
        });
        assert!(entered > 0);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads bring the same word, and a third one another; slots are scarce.
    fn model(slots: usize, leaves: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(move || {
            let underway = Arc::new(Underway::default());
            underway.promise(slots).unwrap();
            let other = {
                let underway = Arc::clone(&underway);
                thread::spawn(move || {
                    let entered = underway.enter(64);
                    if let (Ok(place), true) = (entered, leaves) {
                        underway.leave(place);
                    }
                    entered
                })
            };
            // May come between a claim and the look that follows it.
            underway.promise(slots).unwrap();
            let own = underway.enter(64);
            let others = other.join().unwrap();
            if leaves {
                // The other may be over before this one begins.
                assert!(own.is_ok() || others.is_ok());
            } else {
                assert!(own.is_ok() != others.is_ok());
            }
        });
    }

    #[test]
    fn underway_one_of_two_enters() {
        model(1, false);
        model(2, false);
    }

    #[test]
    fn underway_leaves_while_another_enters() {
        model(1, true);
        model(2, true);
    }
}
