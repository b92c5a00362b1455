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

#[cfg(not(loom))]
pub use parker::Parker;

#[cfg(not(loom))]
mod parker {
    use std::sync::OnceLock;
    use std::thread;
    use std::time::Duration;

    /// Where one thread sleeps until another wakes it.
    #[derive(Default)]
    pub struct Parker {
        thread: OnceLock<thread::Thread>,
    }

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
                Some(timeout) => thread::park_timeout(timeout),
            }
        }

        /// Wakes the thread, or keeps it from its next sleep.
        pub fn unpark(&self) {
            if let Some(thread) = self.thread.get() {
                thread.unpark();
            }
        }
    }
}

/// The same for loom, whose own `unpark()` also wakes a thread that waits for a
/// lock. It has no clock: a sleep with a limit may end at once.
#[cfg(loom)]
#[derive(Default)]
pub struct Parker {
    token: Mutex<bool>,
    given: Condvar,
}

#[cfg(loom)]
impl Parker {
    /// Says that the calling thread is the one that will sleep here.
    pub fn enter(&self) {}

    /// Sleeps until [`unpark`](Self::unpark), the timeout, or for no reason.
    pub fn park(&self, timeout: Option<Duration>) {
        let mut token = lock(&self.token);
        if timeout.is_none() && !*token {
            token = wait(&self.given, token, None);
        }
        *token = false;
    }

    /// Wakes the thread, or keeps it from its next sleep.
    pub fn unpark(&self) {
        *lock(&self.token) = true;
        self.given.notify_one();
    }
}
