//! One process after another: what exit and `fork()` mean for the library.
//!
//! A forked child has the memory of its parent but none of its threads. So all
//! that lives as long as a process hangs on a [`Process`], and `fork()` moves
//! the child on to a fresh one: no lock of the parent's is ever looked at.

#![forbid(unsafe_code)]

use crate::core::underway::Underway;
use crate::errno::{Errno, Result};
use crate::host::{EngineHandle, Shared};
use crate::os;
use once_cell::race::OnceBox;
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long exit waits for verbs calls that are running: the libraries below
/// should not be torn down under them, but a device that does not answer must
/// not keep the process from ending.
const EXIT_PATIENCE_NS: u64 = 2_000_000_000;

static FIRST: Process = Process::new();
static EXIT_HANDLED: AtomicBool = AtomicBool::new(false);

/// What lives as long as the process.
pub struct Process {
    /// The default engine.
    pub default_engine: OnceCell<EngineHandle>,
    /// The regions whose deregistration is under way, on whichever engine.
    pub underway: OnceBox<Underway>,
    /// All engines, to be stopped at exit; `None`: the process is exiting.
    engines: Mutex<Option<Vec<Weak<Shared>>>>,
    /// The process of a child, of its child, …
    child: OnceBox<Process>,
}

impl Process {
    const fn new() -> Self {
        Self {
            default_engine: OnceCell::new(),
            underway: OnceBox::new(),
            engines: Mutex::new(Some(Vec::new())),
            child: OnceBox::new(),
        }
    }
}

/// The calling process.
pub fn process() -> &'static Process {
    let mut process = &FIRST;
    for _ in 0..generation() {
        process = process.child.get_or_init(|| Box::new(Process::new()));
    }
    process
}

/// Tells processes apart: a handle belongs to the generation that made it.
pub fn generation() -> u64 {
    os::forks()
}

/// `EPERM` for a handle of another generation.
pub fn check_generation(made_in: u64) -> Result<()> {
    if made_in == generation() { Ok(()) } else { Err(Errno::EPERM) }
}

/// Has an engine stopped at exit. `ESHUTDOWN`: too late.
pub fn adopt(engine: &Arc<Shared>) -> Result<()> {
    install_handlers()?;
    // Memory is asked for, and given back, while the lock is not held.
    let mut longer = Vec::new();
    loop {
        let mut engines = process().engines.lock().unwrap_or_else(PoisonError::into_inner);
        let list = engines.as_mut().ok_or(Errno::ESHUTDOWN)?;
        if list.len() < longer.capacity() {
            longer.append(list);
            std::mem::swap(list, &mut longer);
        }
        if list.len() < list.capacity() {
            list.push(Arc::downgrade(engine));
            return Ok(());
        }
        let wanted = 2 * list.len() + 8;
        drop(engines);
        longer.try_reserve_exact(wanted)?;
    }
}

/// The engine has stopped by itself.
pub fn forget(engine: &Arc<Shared>) {
    let mut engines = process().engines.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engines) = engines.as_mut() {
        engines.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(engine)));
    }
}

/// Has the library hear of exit and `fork()`.
///
/// Two threads that come here at once both install the exit handler, which does
/// no harm; a lock could be held by another thread at `fork()`.
fn install_handlers() -> Result<()> {
    os::watch_forks()?;
    if !EXIT_HANDLED.load(Ordering::Acquire) {
        os::at_exit(exiting)?;
        EXIT_HANDLED.store(true, Ordering::Release);
    }
    Ok(())
}

/// Stops all engines: no verbs call begins after this.
///
/// It was installed when the first engine was made, so it runs before the
/// libraries are torn down and before the destructors of objects that are older
/// than that engine.
extern "C" fn exiting() {
    let engines = process().engines.lock().unwrap_or_else(PoisonError::into_inner).take();
    // Each time anew, since there may be no memory for a list of them. A worker holds
    // its engine itself.
    let alive = || engines.iter().flatten().filter_map(Weak::upgrade);
    for engine in alive() {
        engine.core.halt();
    }
    let end = os::monotonic_ns() + EXIT_PATIENCE_NS;
    while !alive().all(|engine| engine.core.is_quiet()) && os::monotonic_ns() < end {
        std::thread::sleep(Duration::from_micros(100));
    }
    for engine in alive() {
        // Not joined: a worker may be in a callback that takes its time.
        drop(engine.take_threads());
    }
}
