//! The atomics, locks and threads of the core: loom's under loom, std's else.

#![forbid(unsafe_code)]

#[cfg(loom)]
pub use loom::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};
#[cfg(not(loom))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};

use std::sync::PoisonError;
use std::time::Duration;

/// Locks; a panic of another holder is no reason to stop.
///
/// The data behind the core's locks is whole between any two statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on a condition variable, with a limit or without.
pub fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Option<Duration>,
) -> MutexGuard<'a, T> {
    match limit {
        Some(limit) => {
            condition.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
        }
        None => condition.wait(guard).unwrap_or_else(PoisonError::into_inner),
    }
}

/// Where one thread sleeps until another wakes it. (Not by `thread::park`: to know
/// its own handle, a thread allocates memory, and ends the process if there is none;
/// and loom's `unpark()` also wakes a thread that waits for a lock.)
#[derive(Default)]
pub struct Parker {
    state: Mutex<Parking>,
    woken: Condvar,
}

#[derive(Default, PartialEq, Eq)]
enum Parking {
    #[default]
    Awake,
    Asleep,
    /// The next sleep is over before it begins.
    Roused,
}

impl Parker {
    /// Sleeps until [`unpark`](Self::unpark), the timeout, or for no reason.
    pub fn park(&self, timeout: Option<Duration>) {
        // loom has no clock: a sleep with a limit may end at once.
        let ends_at_once = cfg!(loom) && timeout.is_some();
        let mut state = lock(&self.state);
        if *state == Parking::Awake && !ends_at_once {
            *state = Parking::Asleep;
            state = wait(&self.woken, state, timeout);
        }
        *state = Parking::Awake;
    }

    /// Wakes the thread, or keeps it from its next sleep.
    pub fn unpark(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), Parking::Roused);
        if before == Parking::Asleep {
            self.woken.notify_one();
        }
    }
}
