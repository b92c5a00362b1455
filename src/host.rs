//! Engines as C sees them: the core with threads, verbs and owners.

use crate::config::{self, Config};
use crate::core::engine::{Engine, Host};
use crate::core::request::{Completion, Delivery, Hints, Operation, Outcome, Request, Words};
use crate::core::ring::Closed;
use crate::core::underway::{Place, Refused, Underway};
use crate::cq::{self, CqHandle};
use crate::errno::{Errno, Result};
use crate::ffi::cq::amr_wc;
use crate::ffi::info::amr_stats;
use crate::ffi::post::amr_wr;
use crate::log::{self, Level};
use crate::os::{Memory, Thread};
use crate::populate::{self, Plan};
use crate::verbs::{self, ibv_mr, ibv_pd};
use crate::{default_engine, diagnose, intake, lifecycle, os};
use libc::{c_int, c_void};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the workers of an engine and its completion queues share.
pub struct Shared {
    /// The engine proper.
    pub core: Engine<Verbs>,
    /// Completion queues that are alive.
    pub queues: AtomicU32,
    /// The process that made it.
    pub generation: u64,
    /// What a registration is not treated to here.
    withheld: Hints,
    /// What each registration is treated to here.
    given: Hints,
    /// Tells engines apart, for good.
    id: u64,
    begun: Begun,
    threads: Mutex<Vec<Thread>>,
}

impl Shared {
    /// How a request is treated here: when it came, and, if it makes memory, where
    /// and how. `EALREADY`: the region is being deregistered already.
    pub fn receive(&self, request: Request, submitted: u64) -> Result<Request> {
        let request = Request { submitted, ..self.core.host().enter(request)? };
        Ok(match request.operation {
            Operation::Deregister => request,
            Operation::Register => Request {
                hints: (request.hints | self.given).without(self.withheld),
                policy: os::current_policy(),
                ..request
            },
        })
    }

    /// Submits received requests, `limit` at most; says how many were taken.
    pub fn submit(&self, requests: &[Words], limit: usize) -> Result<usize> {
        let submitted = self.core.submit(&requests[..limit]);
        for refused in &requests[*submitted.as_ref().unwrap_or(&0)..] {
            self.core.host().leave(&Request::decode(refused));
        }
        submitted.map_err(|Closed| Errno::ESHUTDOWN)
    }

    /// `EDEADLK` on a worker of this engine, which is in a callback.
    pub fn check_not_in_callback(&self) -> Result<()> {
        if WORKER_OF.get() == self.id { Err(Errno::EDEADLK) } else { Ok(()) }
    }

    /// The workers that nobody has joined; they are the caller's now.
    pub fn take_threads(&self) -> Vec<Thread> {
        std::mem::take(&mut *self.threads())
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// It is made without a way to fail: see os::Memory.
const _: () = assert!(size_of::<Shared>() + 2 * size_of::<usize>() <= os::BLOCK);

/// How many workers have begun, and what went wrong with one of them.
#[derive(Default)]
struct Begun {
    state: Mutex<(usize, Option<Errno>)>,
    changed: Condvar,
}

impl Begun {
    /// A worker is ready or has failed.
    fn tell(&self, ready: Result<()>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        state.1 = state.1.or(ready.err());
        self.changed.notify_one();
    }

    /// Waits for so many.
    fn wait_for(&self, workers: usize) -> Result<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |(begun, _)| *begun < workers)
            .unwrap_or_else(PoisonError::into_inner);
        state.1.map_or(Ok(()), Err)
    }
}

thread_local! {
    /// The engine that the calling thread is a worker of; 0: none.
    static WORKER_OF: Cell<u64> = const { Cell::new(0) };
}

/// `struct amr_engine`
pub struct EngineHandle {
    shared: Arc<Shared>,
}

impl EngineHandle {
    /// Makes an engine for a C caller.
    pub fn create(config: &Config) -> Result<*mut Self> {
        let _making = lifecycle::make();
        let memory = Memory::now();
        let engine = Box::new(Self::start_alone(config)?);
        if memory.ran_out() {
            engine.stop();
            return Err(Errno(libc::ENOMEM));
        }
        Ok(Box::into_raw(engine))
    }

    /// Makes an engine and starts its workers.
    pub fn start(config: &Config) -> Result<Self> {
        let _making = lifecycle::make();
        Self::start_alone(config)
    }

    /// The same for who has seen to it that nobody else does.
    fn start_alone(config: &Config) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        os::calibrate_stamps();
        os::learn_nodes();
        let memory = Memory::now();
        let workers = config.workers as usize;
        let spins = os::cpus_at_load() > 1;
        let generation = lifecycle::generation();
        let world = Verbs::new(config.queue_depth as usize)?;
        let shared = Arc::new(Shared {
            core: Engine::new(workers, config.queue_depth as usize, spins, world)?,
            queues: AtomicU32::new(0),
            generation,
            withheld: if config.prefault { Hints::NONE } else { Hints::POPULATE },
            given: if config.huge_pages { Hints::HUGE } else { Hints::NONE },
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            begun: Begun::default(),
            threads: Mutex::new(Vec::with_capacity(workers)),
        });
        lifecycle::adopt(&shared)?;
        let engine = Self { shared };
        engine.start_workers(config).inspect_err(|_| engine.stop())?;
        if memory.ran_out() {
            engine.stop();
            return Err(Errno(libc::ENOMEM));
        }
        log::write(
            Level::Info,
            format_args!(
                "engine {} with {workers} workers, queue of {}",
                engine.shared.id,
                engine.shared.core.queue_depth()
            ),
        );
        Ok(engine)
    }

    /// The handle for C of an engine that lives as long as the process.
    pub fn as_ptr(&'static self) -> *mut Self {
        std::ptr::from_ref(self).cast_mut()
    }

    /// The engine of a handle; NULL: the default engine.
    ///
    /// # Safety
    /// `engine` is NULL or alive for `'a`.
    pub unsafe fn or_default<'a>(engine: *mut Self) -> Result<&'a Self> {
        // SAFETY: the caller gives NULL or a live engine.
        match unsafe { engine.as_ref() } {
            None => default_engine::get(),
            Some(engine) => {
                lifecycle::check_generation(engine.shared.generation)?;
                Ok(engine)
            }
        }
    }

    /// Ends an engine.
    ///
    /// # Safety
    /// `engine` is NULL or alive, and nobody else uses it.
    pub unsafe fn destroy(engine: *mut Self) -> Result<()> {
        {
            // SAFETY: the caller gives NULL or a live engine.
            let engine = unsafe { engine.as_ref() }.ok_or(Errno::EINVAL)?;
            lifecycle::check_generation(engine.shared.generation)?;
            engine.shared.check_not_in_callback()?;
            if default_engine::is(engine) {
                return Err(Errno::EINVAL);
            }
            if engine.shared.queues.load(Ordering::Acquire) > 0 {
                return Err(Errno::EBUSY);
            }
            engine.stop();
            log::write(Level::Info, format_args!("engine {} destroyed", engine.shared.id));
        }
        // SAFETY: create() made it of a box, and its threads are gone.
        drop(unsafe { Box::from_raw(engine) });
        Ok(())
    }

    /// What the engine shares with its completion queues.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Starts the workers and waits until each of them has begun, or one failed.
    fn start_workers(&self, config: &Config) -> Result<()> {
        let memory = Memory::now();
        let workers = self.shared.core.workers();
        for index in 0..workers {
            let shared = Arc::clone(&self.shared);
            let config = config.clone();
            let name = format!("amr-{}-{index}", self.shared.id);
            let thread = os::spawn_worker(name, move || {
                let ready = pin_worker(&config);
                shared.begun.tell(ready);
                if ready.is_ok() {
                    WORKER_OF.set(shared.id);
                    shared.core.work(index);
                }
            })?;
            self.shared.threads().push(thread);
            // Each takes a little of the reserve, if it must: that is not for many.
            if memory.ran_out() {
                return Err(Errno(libc::ENOMEM));
            }
        }
        self.shared.begun.wait_for(workers)
    }

    /// Takes no more requests and joins the workers.
    fn stop(&self) {
        self.shared.core.close();
        for thread in self.shared.take_threads() {
            thread.join();
        }
        lifecycle::forget(&self.shared);
    }
}

/// Moves the calling worker to its CPUs.
fn pin_worker(config: &Config) -> Result<()> {
    let Some(cpus) = &config.cpus else {
        os::unbind_current_thread();
        return Ok(());
    };
    os::pin_current_thread(cpus).or_else(|error| {
        if config.cpus_are_optional {
            config::complain_of_cpus();
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// A callback of the application and its context.
#[derive(Clone, Copy)]
pub struct Callback {
    function: unsafe extern "C" fn(*mut ibv_mr, c_int, *mut c_void),
    ctx: *mut c_void,
}

impl Callback {
    /// What the application gave.
    pub fn new(
        function: unsafe extern "C" fn(*mut ibv_mr, c_int, *mut c_void),
        ctx: *mut c_void,
    ) -> Self {
        Self { function, ctx }
    }

    fn address(&self, request: Request) -> Request {
        Request {
            delivery: Delivery::Callback,
            owner: (self.function as *const ()).expose_provenance() as u64,
            tag: self.ctx.expose_provenance() as u64,
            ..request
        }
    }

    fn of(request: &Request) -> Self {
        let function = std::ptr::with_exposed_provenance::<()>(request.owner as usize);
        Self {
            // SAFETY: address() made the number of a function of this type.
            function: unsafe {
                std::mem::transmute::<
                    *const (),
                    unsafe extern "C" fn(*mut ibv_mr, c_int, *mut c_void),
                >(function)
            },
            ctx: pointer(request.tag),
        }
    }

    fn call(&self, outcome: &Outcome) {
        // SAFETY: the application gave the function for this call.
        unsafe { (self.function)(pointer(outcome.region), outcome.status, self.ctx) };
    }
}

/// A callback of the application that gets a whole completion.
#[derive(Clone, Copy)]
pub struct CompletionCallback(unsafe extern "C" fn(*const amr_wc));

impl CompletionCallback {
    /// What the application gave.
    pub fn new(function: unsafe extern "C" fn(*const amr_wc)) -> Self {
        Self(function)
    }

    fn address(&self, request: Request) -> Request {
        Request {
            delivery: Delivery::CompletionCallback,
            owner: (self.0 as *const ()).expose_provenance() as u64,
            ..request
        }
    }

    fn of(request: &Request) -> Self {
        let function = std::ptr::with_exposed_provenance::<()>(request.owner as usize);
        // SAFETY: address() made the number of a function of this type.
        Self(unsafe {
            std::mem::transmute::<*const (), unsafe extern "C" fn(*const amr_wc)>(function)
        })
    }

    fn call(&self, completion: &Completion) {
        // SAFETY: the application gave the function for this call.
        unsafe { (self.0)(&cq::to_wc(completion)) };
    }
}

/// Submits a request whose completion is a callback.
pub fn submit_callback(engine: &EngineHandle, request: Request, callback: Callback) -> Result<()> {
    let request = engine.shared.receive(callback.address(request), os::stamp_ns())?;
    submit(engine, &[request.encode()]).map(|_| ())
}

/// Takes work requests whose completions are callbacks, until one is refused;
/// `taken` counts them.
///
/// # Safety
/// The operands name NULL or live objects, as the opcodes say.
pub unsafe fn post_callback(
    engine: &EngineHandle,
    requests: &[amr_wr],
    callback: CompletionCallback,
    taken: &mut usize,
) -> Result<()> {
    let address = |request, submitted| engine.shared.receive(callback.address(request), submitted);
    let submit = |batch: &[Words]| {
        let accepted = submit(engine, batch)?;
        *taken += accepted;
        if accepted < batch.len() { Err(Errno::EAGAIN) } else { Ok(()) }
    };
    // SAFETY: the caller vouches for the operands.
    unsafe { intake::work_requests(requests, address, submit) }
}

/// Takes as many requests as there is room for, one at least, or `EAGAIN`.
fn submit(engine: &EngineHandle, requests: &[Words]) -> Result<usize> {
    match engine.shared.submit(requests, requests.len()) {
        Ok(0) if !requests.is_empty() => Err(Errno::EAGAIN),
        accepted => accepted,
    }
}

/// Waits until nothing is queued or running on `pd`, or on any if it is NULL.
pub fn drain(engine: &EngineHandle, pd: *mut ibv_pd, timeout_ms: c_int) -> Result<()> {
    let remaining = deadline(timeout_ms)?;
    engine.shared.check_not_in_callback()?;
    let core = &engine.shared.core;
    let pd = pd.expose_provenance() as u64;
    let over = core.drain(|request| pd == 0 || request.pd == pd, remaining);
    match (core.is_halted(), over) {
        (true, _) => Err(Errno::ESHUTDOWN),
        (false, true) => Ok(()),
        (false, false) => Err(Errno::ETIMEDOUT),
    }
}

/// How long is left of a timeout as C gives it: -1 is no limit.
pub fn deadline(timeout_ms: c_int) -> Result<impl Fn() -> Option<Duration>> {
    let end = match timeout_ms {
        -1 => None,
        ..-1 => return Err(Errno::EINVAL),
        0.. => Some(os::monotonic_ns() + u64::from(timeout_ms.unsigned_abs()) * 1_000_000),
    };
    Ok(move || end.map(|end| Duration::from_nanos(end.saturating_sub(os::monotonic_ns()))))
}

/// What the engine has done and is doing.
pub fn stats(engine: &EngineHandle) -> amr_stats {
    let core = &engine.shared.core;
    let snapshot = core.snapshot();
    amr_stats {
        size: size_of::<amr_stats>(),
        submitted: snapshot.submitted,
        completed: snapshot.totals.completed,
        failed: snapshot.totals.failed,
        cancelled: snapshot.totals.cancelled,
        queued: snapshot.queued,
        running: snapshot.running,
        registered_bytes: snapshot.totals.registered_bytes,
        queue_ns_total: snapshot.totals.queue_ns_total,
        queue_ns_max: snapshot.totals.queue_ns_max,
        busy_ns_total: snapshot.totals.busy_ns_total,
        busy_ns_max: snapshot.totals.busy_ns_max,
        populate_ns_total: snapshot.totals.populate_ns_total,
        populate_ns_max: snapshot.totals.populate_ns_max,
        workers: core.workers() as u32,
        queue_depth: core.queue_depth() as u32,
    }
}

/// The world of an engine: the clock, verbs, and the owners of requests.
pub struct Verbs {
    generation: u64,
    /// What no second deregistration may be posted for.
    underway: &'static Underway,
    /// How much room was made in that for this engine.
    room: usize,
}

impl Verbs {
    fn new(queue_depth: usize) -> Result<Self> {
        let process = lifecycle::process();
        let underway = process.underway.get_or_init(Box::default);
        underway.promise(queue_depth)?;
        Ok(Self { generation: lifecycle::generation(), underway, room: queue_depth })
    }

    /// Before a request is submitted: its region is one that nobody else has
    /// given away.
    pub fn enter(&self, request: Request) -> Result<Request> {
        if request.operation == Operation::Register {
            return Ok(request);
        }
        let place = self.underway.enter(request.iova).map_err(|refused| match refused {
            Refused::Known => Errno::EALREADY,
            Refused::Full => Errno::EAGAIN,
        })?;
        Ok(Request { iova: place.encode(), ..request })
    }

    /// A request was not submitted after all, or is over: its region, if there
    /// still is one, can be given away.
    pub fn leave(&self, request: &Request) {
        if request.operation == Operation::Deregister {
            self.underway.leave(Place::decode(request.iova));
        }
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        self.underway.withdraw_promise(self.room);
    }
}

impl Host for Verbs {
    type Plan = Plan;

    fn prepare(&self, request: &Request) {
        if request.hints.contains(Hints::HUGE) {
            populate::advise_huge_pages(request);
        }
    }

    fn populate(&self, request: &Request, part: Range<u64>, plan: &mut Option<Plan>) -> u64 {
        os::adopt_policy(request.policy);
        populate::populate(request, &part, plan)
    }

    fn is_child(&self) -> bool {
        self.generation != lifecycle::generation()
    }

    fn now(&self) -> u64 {
        os::monotonic_ns()
    }

    fn stamp(&self) -> u64 {
        os::stamp_ns()
    }

    fn execute(&self, request: &Request) -> Outcome {
        match request.operation {
            Operation::Register => register(request),
            Operation::Deregister => deregister(request),
        }
    }

    fn deliver(&self, request: &Request, completion: &Completion) {
        // First, since whoever hears of it may post the region again.
        self.leave(request);
        match request.delivery {
            Delivery::Callback => Callback::of(request).call(&completion.outcome),
            Delivery::CompletionCallback => CompletionCallback::of(request).call(completion),
            Delivery::Queue => {
                let queue: *const CqHandle = pointer(request.owner);
                // SAFETY: a completion queue is not freed while a request of it
                // is queued or running, nor while a worker delivers to it: see
                // CqHandle::destroy().
                unsafe { &*queue }.complete(completion);
            }
        }
    }
}

fn register(request: &Request) -> Outcome {
    os::adopt_policy(request.policy);
    if request.hints.contains(Hints::HUGE) && !request.hints.contains(Hints::POPULATE) {
        populate::advise_huge_pages(request);
    }
    // SAFETY: the application keeps the PD open until the completion.
    let registered = unsafe {
        verbs::register(
            pointer(request.pd),
            pointer(request.address),
            request.length as usize,
            request.iova,
            request.access,
        )
    };
    match registered {
        Ok(mr) => {
            log::write(
                Level::Debug,
                format_args!("registered {} bytes at {:#x}", request.length, request.address),
            );
            Outcome { region: mr.as_ptr().expose_provenance() as u64, ..Outcome::default() }
        }
        Err(error) => {
            log::write(
                Level::Info,
                format_args!("registration of {} bytes failed: {error}", request.length),
            );
            diagnose::registration(request, error)
        }
    }
}

fn deregister(request: &Request) -> Outcome {
    // SAFETY: the application has given the region away until the completion.
    match unsafe { verbs::deregister(pointer(request.address)) } {
        Ok(()) => {
            log::write(Level::Debug, format_args!("deregistered {} bytes", request.length));
            Outcome::default()
        }
        Err(error) => {
            log::write(Level::Info, format_args!("deregistration failed: {error}"));
            Outcome { region: request.address, ..Outcome::failed(error.0) }
        }
    }
}

/// The pointer whose provenance was exposed when the word was made of it.
pub fn pointer<T>(word: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(word as usize)
}
