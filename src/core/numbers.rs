//! Numbers for values that are met again and again: a table in which each place is
//! written once.
//!
//! No lock, since a fork in the wrong moment would leave it held in the child; and no
//! memory, since a submit could not do without.

#![forbid(unsafe_code)]

use super::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const FREE: u8 = 0;
/// Somebody writes it: nobody else uses it until then.
const CLAIMED: u8 = 1;
const SET: u8 = 2;

/// See the module: for `N` values of `W` words.
pub struct Numbers<const W: usize, const N: usize>([Place<W>; N]);

struct Place<const W: usize> {
    state: AtomicU8,
    words: [AtomicU64; W],
}

impl<const W: usize, const N: usize> Numbers<W, N> {
    /// Without a value.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Self {
        Self(
            [const { Place { state: AtomicU8::new(FREE), words: [const { AtomicU64::new(0) }; W] } };
                N],
        )
    }

    /// loom's atomics cannot be made before the program runs.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Place {
            state: AtomicU8::new(FREE),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }))
    }

    /// The number of a value; `None`: it has none, and there is no place left. Two
    /// threads that bring the same new value at once may get two numbers for it.
    pub fn number(&self, value: &[u64; W]) -> Option<usize> {
        self.0.iter().position(|place| place.get().as_ref() == Some(value) || place.set(value))
    }

    /// The value of a number.
    pub fn value(&self, number: usize) -> Option<[u64; W]> {
        self.0.get(number)?.get()
    }
}

impl<const W: usize> Place<W> {
    fn get(&self) -> Option<[u64; W]> {
        let is_set = self.state.load(Ordering::Acquire) == SET;
        is_set.then(|| std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)))
    }

    /// Whether the place was free.
    fn set(&self, value: &[u64; W]) -> bool {
        let relaxed = Ordering::Relaxed;
        let was_free = self.state.compare_exchange(FREE, CLAIMED, relaxed, relaxed).is_ok();
        if was_free {
            self.words.iter().zip(value).for_each(|(to, &from)| to.store(from, relaxed));
            self.state.store(SET, Ordering::Release);
        }
        was_free
    }
}
