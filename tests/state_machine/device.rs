//! The device: the functions of libibverbs that the library calls, as a test wants them.
//!
//! They are defined in this program, so they come before those of the shared
//! libibverbs. A call of a worker waits inside until it is let go or the gate is
//! open; one of the thread that runs the test passes at once. Each call ends as the
//! test has said before, and the device remembers how. It knows which regions are
//! alive, and complains of what no device can be asked for.

use crate::verbs::{ibv_context, ibv_device_attr, ibv_mr, ibv_pd};
use libc::{c_int, c_uint, c_void, size_t};
use std::cell::Cell;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A region. Addresses are used again as soon as they are free, keys are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    pub address: usize,
    pub key: u32,
}

impl Region {
    pub fn pointer(self) -> *mut ibv_mr {
        ptr::with_exposed_provenance_mut(self.address)
    }
}

/// A call and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Register { pd: usize, addr: usize, length: usize, iova: u64, access: u32 },
    Deregister(Region),
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With an errno value, which a deregistration returns.
    Errno(c_int),
    /// With an errno value, for which a deregistration returns -1.
    OldStyle(c_int),
    /// Without an errno value.
    Silent,
}

impl Failure {
    /// The status that the contract gives it.
    pub fn status(self) -> i32 {
        match self {
            Self::Errno(errno) | Self::OldStyle(errno) => errno,
            Self::Silent => libc::EIO,
        }
    }
}

/// How a call ended: with the region that a registration made, or not.
pub type Outcome = Result<Option<Region>, Failure>;

/// A call that is inside.
#[derive(Clone, Debug)]
pub struct Inside {
    pub ticket: u64,
    pub call: Call,
    /// It is done, but has not returned.
    pub outcome: Option<Outcome>,
    pd: usize,
    may_leave: bool,
}

/// A call that is done.
#[derive(Clone, Debug)]
pub struct Done {
    pub call: Call,
    pub outcome: Outcome,
    /// By the thread that runs the test.
    pub by_driver: bool,
}

#[derive(Default)]
pub struct State {
    is_open: bool,
    /// Calls on these PDs pass whether it is open or not.
    free_pds: HashSet<usize>,
    /// When the test last began with something.
    began: Option<Instant>,
    tickets: u64,
    inside: Vec<Inside>,
    history: Vec<Done>,
    failures: VecDeque<Failure>,
    keys: u32,
    /// Where PDs are; for good, and the same for each test.
    pds: Vec<usize>,
    /// Where regions can be; the same.
    places: Vec<usize>,
    unused: Vec<usize>,
    live: BTreeSet<Region>,
    complaints: Vec<String>,
}

impl State {
    pub fn inside(&self) -> &[Inside] {
        &self.inside
    }

    pub fn is_inside(&self, ticket: u64) -> bool {
        self.inside.iter().any(|inside| inside.ticket == ticket)
    }

    fn may_leave(&self, inside: &Inside) -> bool {
        self.is_open || inside.may_leave || self.free_pds.contains(&inside.pd)
    }

    /// What the call is for, done now.
    fn perform(&mut self, call: Call, failure: Option<Failure>, by_driver: bool) -> Outcome {
        let outcome = match (failure, call) {
            (Some(failure), _) => Err(failure),
            (None, Call::Register { pd, addr, length, .. }) => {
                Ok(Some(self.make(pd, addr, length)))
            }
            (None, Call::Deregister(region)) => {
                if self.live.remove(&region) {
                    self.unused.push(region.address);
                } else {
                    self.complaints.push(format!("{region:?} is gone, and is deregistered"));
                }
                Ok(None)
            }
        };
        self.history.push(Done { call, outcome, by_driver });
        outcome
    }

    /// Makes a region where the last one was that went away.
    fn make(&mut self, pd: usize, addr: usize, length: usize) -> Region {
        self.keys += 1;
        let key = self.keys;
        let mr = ibv_mr {
            context: ptr::null_mut(),
            pd: ptr::with_exposed_provenance_mut(pd),
            addr: ptr::with_exposed_provenance_mut(addr),
            length,
            handle: key,
            lkey: key,
            rkey: key,
        };
        let address = match self.unused.pop() {
            Some(address) => {
                let place: *mut ibv_mr = ptr::with_exposed_provenance_mut(address);
                // SAFETY: it was leaked below, and nobody looks at a region that is gone.
                unsafe { place.write(mr) };
                address
            }
            None => {
                let address = ptr::from_mut(Box::leak(Box::new(mr))).expose_provenance();
                self.places.push(address);
                address
            }
        };
        let region = Region { address, key };
        self.live.insert(region);
        region
    }

    /// The PD of a call.
    fn pd_of(&self, call: Call) -> usize {
        match call {
            Call::Register { pd, .. } => pd,
            // SAFETY: make() leaked it, and writes only where no region is alive.
            Call::Deregister(region) => unsafe { (*region.pointer()).pd }.addr(),
        }
    }

    /// The region that is at an address.
    fn find(&mut self, address: usize) -> Option<Region> {
        let found = self.live.iter().find(|region| region.address == address).copied();
        if found.is_none() {
            self.complaints.push(format!("no region is at {address:#x}, and it is deregistered"));
        }
        found
    }
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// How long a test waits for what must come.
static PATIENCE_MS: AtomicU64 = AtomicU64::new(20_000);

thread_local! {
    /// The thread that runs the test.
    static IS_DRIVER: Cell<bool> = const { Cell::new(false) };
}

pub fn patience() -> Duration {
    Duration::from_millis(PATIENCE_MS.load(Ordering::Relaxed))
}

/// After a failure, which has to be found again many times to be made small.
pub fn lose_patience() {
    PATIENCE_MS.store(500, Ordering::Relaxed);
}

fn lock() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at the device or changes it.
pub fn with<T>(body: impl FnOnce(&mut State) -> T) -> T {
    let result = body(lock().get_or_insert_default());
    CHANGED.notify_all();
    result
}

/// A new device with the gate closed; the calling thread runs the test. What is
/// inside the old one, after a test that has failed, fails.
pub fn reset() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| drop(thread::spawn(watch)));
    IS_DRIVER.set(true);
    with(|state| {
        let State { tickets, keys, pds, places, .. } = std::mem::take(state);
        *state = State { tickets, keys, pds, unused: places.clone(), places, ..State::default() };
    });
}

/// Opens the gate for a test that hangs, in a call that waits for what it must not wait
/// for: so it fails instead.
fn watch() {
    loop {
        thread::sleep(patience() / 4);
        with(|state| {
            let hangs = state.began.is_some_and(|began| began.elapsed() > 2 * patience());
            state.is_open |= hangs;
        });
    }
}

/// The test goes on, so it does not hang.
pub fn note_progress() {
    with(|state| state.began = Some(Instant::now()));
}

/// Waits until the device is as is wanted; says whether it came to that.
pub fn wait_until(is_so: impl Fn(&State) -> bool) -> bool {
    let end = Instant::now() + patience();
    let mut guard = lock();
    while !is_so(guard.get_or_insert_default()) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        guard = CHANGED.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    true
}

pub fn set_open(is_open: bool) {
    with(|state| state.is_open = is_open);
}

/// The address of a PD.
pub fn pd(number: usize) -> usize {
    with(|state| {
        while state.pds.len() <= number {
            let pd = Box::new(ibv_pd { context: ptr::null_mut(), handle: 0 });
            state.pds.push(ptr::from_mut(Box::leak(pd)).expose_provenance());
        }
        state.pds[number]
    })
}

/// Lets calls on these PDs pass, and no others any more.
pub fn free(pds: HashSet<usize>) {
    with(|state| state.free_pds = pds);
}

/// The next call that is done fails.
pub fn fail_next(failure: Failure) {
    with(|state| state.failures.push_back(failure));
}

pub fn next_failure() -> Option<Failure> {
    with(|state| state.failures.front().copied())
}

/// Whether a call that is inside is done.
pub fn is_done(ticket: u64) -> bool {
    with(|state| state.inside.iter().any(|i| i.ticket == ticket && i.outcome.is_some()))
}

/// Has a call done that does not return yet.
pub fn perform(ticket: u64) {
    with(|state| {
        let Some(index) = state.inside.iter().position(|inside| inside.ticket == ticket) else {
            return;
        };
        if state.inside[index].outcome.is_none() {
            let failure = state.failures.pop_front();
            let outcome = state.perform(state.inside[index].call, failure, false);
            state.inside[index].outcome = Some(outcome);
        }
    });
}

/// Has a call done and lets it return.
pub fn let_go(ticket: u64) {
    with(|state| {
        for inside in state.inside.iter_mut().filter(|inside| inside.ticket == ticket) {
            inside.may_leave = true;
        }
    });
}

/// What was done since this was asked for the last time, in order.
pub fn take_history() -> Vec<Done> {
    with(|state| std::mem::take(&mut state.history))
}

pub fn take_complaints() -> Vec<String> {
    with(|state| std::mem::take(&mut state.complaints))
}

/// The regions that are alive.
pub fn live() -> BTreeSet<Region> {
    with(|state| state.live.clone())
}

/// A call's way through the device.
fn pass(call: impl FnOnce(&mut State) -> Option<Call>) -> Outcome {
    let mut guard = lock();
    let state = guard.get_or_insert_default();
    let Some(call) = call(state) else { return Err(Failure::Errno(libc::EINVAL)) };
    if IS_DRIVER.get() {
        return state.perform(call, None, true);
    }
    state.tickets += 1;
    let ticket = state.tickets;
    let pd = state.pd_of(call);
    state.inside.push(Inside { ticket, call, outcome: None, pd, may_leave: false });
    CHANGED.notify_all();
    loop {
        let state = guard.get_or_insert_default();
        let Some(index) = state.inside.iter().position(|inside| inside.ticket == ticket) else {
            return Err(Failure::Errno(libc::ENODEV));
        };
        if state.may_leave(&state.inside[index]) {
            let inside = state.inside.remove(index);
            let outcome = inside.outcome.unwrap_or_else(|| {
                let failure = state.failures.pop_front();
                state.perform(call, failure, false)
            });
            CHANGED.notify_all();
            return outcome;
        }
        guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
}

fn errno() -> c_int {
    // SAFETY: no argument.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it belongs to this thread.
    unsafe { *place }
}

fn set_errno(errno: c_int) {
    // SAFETY: no argument.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it belongs to this thread.
    unsafe { *place = errno };
}

/// `ibv_reg_mr_iova2(3)`, which is what the library registers with.
#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let before = errno();
    let call = Call::Register { pd: pd.addr(), addr: addr.addr(), length, iova, access };
    match pass(|_| Some(call)) {
        Ok(region) => {
            // What it leaves in errno means nothing.
            set_errno(libc::EAGAIN);
            region.map_or(ptr::null_mut(), Region::pointer)
        }
        Err(failure) => {
            set_errno(if failure == Failure::Silent { before } else { failure.status() });
            ptr::null_mut()
        }
    }
}

/// `ibv_dereg_mr(3)`
#[unsafe(no_mangle)]
extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let before = errno();
    let outcome = pass(|state| state.find(mr.addr()).map(Call::Deregister));
    set_errno(match outcome {
        Ok(_) => libc::EAGAIN,
        Err(Failure::OldStyle(errno)) => errno,
        Err(_) => before,
    });
    match outcome {
        Ok(_) => 0,
        Err(Failure::Errno(errno)) => errno,
        Err(_) => -1,
    }
}

/// `ibv_query_device(3)`, which the library asks why a registration failed.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the library gives a struct to write to.
    let attr = unsafe { &mut *attr };
    attr.max_mr_size = u64::MAX;
    attr.max_mr = c_int::MAX;
    0
}
