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

#[cfg(loom)]
use std::sync::OnceLock;
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
/// its own handle, a thread allocates memory, and ends the process if there is none.)
#[cfg(not(loom))]
#[derive(Default)]
pub struct Parker {
    state: Mutex<Parking>,
    woken: Condvar,
}

#[cfg(not(loom))]
#[derive(Default, PartialEq, Eq)]
enum Parking {
    #[default]
    Awake,
    Asleep,
    /// The next sleep is over before it begins.
    Roused,
}

#[cfg(not(loom))]
impl Parker {
    /// Says that the calling thread is the one that will sleep here.
    pub fn enter(&self) {}

    /// Sleeps until [`unpark`](Self::unpark), the timeout, or for no reason.
    pub fn park(&self, timeout: Option<Duration>) {
        let mut state = lock(&self.state);
        if *state == Parking::Awake {
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

/// Where one thread sleeps until another wakes it.
#[cfg(loom)]
#[derive(Default)]
pub struct Parker {
    thread: OnceLock<thread::Thread>,
}

#[cfg(loom)]
impl Parker {
    /// Says that the calling thread is the one that will sleep here.
    pub fn enter(&self) {
        // A second call by the same thread changes nothing.
        let _ = self.thread.set(thread::current());
    }

    /// Sleeps until [`unpark`](Self::unpark), the timeout, or for no reason.
    pub fn park(&self, timeout: Option<Duration>) {
        match timeout {
            None => thread::park(),
            Some(timeout) => park_timeout(timeout),
        }
    }

    /// Wakes the thread, or keeps it from its next sleep.
    pub fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

// loom has no clock: a sleep with a limit may end at once.
#[cfg(loom)]
fn park_timeout(_timeout: Duration) {
    thread::yield_now();
}
