//! The library's C functions, with the types of this test.
//!
//! A handle is used only while the test knows it to be alive, and what a request
//! names lives as long as the test: all the SAFETY comments below rest on that.

use crate::verbs::ibv_pd;
use amr::ffi::cq::{self, amr_wc};
use amr::ffi::engine::{self, amr_engine_attr};
use amr::ffi::info::{self, amr_stats};
use amr::ffi::post::{self, AMR_OP_DEREG_MR, amr_dereg_mr, amr_reg_mr, amr_wr};
use amr::ffi::single;
use libc::{c_int, c_void, size_t};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// `struct amr_engine *`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnginePtr(pub *mut c_void);

/// `struct amr_cq *`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePtr(pub *mut c_void);

/// What stands for the default engine, and is no queue.
pub const NO_ENGINE: EnginePtr = EnginePtr(ptr::null_mut());
pub const NO_QUEUE: QueuePtr = QueuePtr(ptr::null_mut());

/// Attributes of a library that is newer than this one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LongAttr {
    pub attr: amr_engine_attr,
    pub tail: [usize; 2],
}

impl LongAttr {
    pub fn new(workers: u32, queue_depth: u32, flags: u32) -> Self {
        let size = size_of::<amr_engine_attr>();
        let cpus = ptr::null();
        let attr = amr_engine_attr { size, workers, queue_depth, cpus, flags, reserved: 0 };
        Self { attr, tail: [0; 2] }
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub fn create_engine(attr: &LongAttr) -> Result<EnginePtr, c_int> {
    // SAFETY: of what its size says the struct has all, or the size is one that is refused.
    let engine = unsafe { engine::amr_create_engine(ptr::from_ref(attr).cast()) };
    if engine.is_null() { Err(errno()) } else { Ok(EnginePtr(engine.cast())) }
}

pub fn destroy_engine(engine: EnginePtr) -> c_int {
    // SAFETY: see above.
    unsafe { engine::amr_destroy_engine(engine.0.cast()) }
}

pub fn default_engine() -> EnginePtr {
    EnginePtr(engine::amr_default_engine().cast())
}

pub fn drain(engine: EnginePtr, pd: usize, timeout_ms: c_int) -> c_int {
    let pd: *mut ibv_pd = ptr::with_exposed_provenance_mut(pd);
    // SAFETY: see above.
    unsafe { engine::amr_drain(engine.0.cast(), pd.cast(), timeout_ms) }
}

pub fn create_queue(engine: EnginePtr, capacity: u32) -> Result<QueuePtr, c_int> {
    // SAFETY: see above.
    let queue = unsafe { cq::amr_create_cq(engine.0.cast(), capacity) };
    if queue.is_null() { Err(errno()) } else { Ok(QueuePtr(queue.cast())) }
}

pub fn destroy_queue(queue: QueuePtr) -> c_int {
    // SAFETY: see above.
    unsafe { cq::amr_destroy_cq(queue.0.cast()) }
}

pub fn queue_fd(queue: QueuePtr) -> c_int {
    // SAFETY: see above.
    unsafe { cq::amr_cq_fd(queue.0.cast()) }
}

/// `amr_wait_cq()`, or without a timeout `amr_poll_cq()`.
pub fn read(
    queue: QueuePtr,
    limit: c_int,
    timeout_ms: Option<c_int>,
) -> Result<Vec<amr_wc>, c_int> {
    let mut room = vec![MaybeUninit::<amr_wc>::uninit(); usize::try_from(limit).unwrap_or(0)];
    let wc = room.as_mut_ptr().cast();
    let count = match timeout_ms {
        // SAFETY: see above; there is room for so many.
        None => unsafe { cq::amr_poll_cq(queue.0.cast(), limit, wc) },
        // SAFETY: the same.
        Some(timeout_ms) => unsafe { cq::amr_wait_cq(queue.0.cast(), limit, wc, timeout_ms) },
    };
    if count < 0 {
        return Err(-count);
    }
    room.truncate(count as usize);
    // SAFETY: so many were written, as the library says.
    Ok(room.into_iter().map(|wc| unsafe { wc.assume_init() }).collect())
}

/// Reading to nowhere.
pub fn read_to_null(queue: QueuePtr, waits: bool) -> c_int {
    if waits {
        // SAFETY: see above; NULL is refused.
        unsafe { cq::amr_wait_cq(queue.0.cast(), 1, ptr::null_mut(), 0) }
    } else {
        // SAFETY: the same.
        unsafe { cq::amr_poll_cq(queue.0.cast(), 1, ptr::null_mut()) }
    }
}

/// An array of work requests as C gives it.
#[derive(Clone, Copy)]
pub struct Array {
    pub start: *const amr_wr,
    pub count: size_t,
}

impl Array {
    pub fn of(requests: &[amr_wr]) -> Self {
        Self { start: requests.as_ptr(), count: requests.len() }
    }
}

pub fn post(queue: QueuePtr, requests: Array, posted: Option<&mut size_t>) -> c_int {
    let posted = posted.map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: see above; the array is there, or is one that is refused.
    unsafe { post::amr_post(queue.0.cast(), requests.start, requests.count, posted) }
}

/// `tells`: there is a callback.
pub fn post_callback(
    engine: EnginePtr,
    requests: Array,
    tells: bool,
    posted: Option<&mut size_t>,
) -> c_int {
    let posted = posted.map_or(ptr::null_mut(), ptr::from_mut);
    let callback = tells.then_some(on_completion as unsafe extern "C" fn(*const amr_wc));
    let Array { start, count } = requests;
    // SAFETY: as for post().
    unsafe { post::amr_post_callback(engine.0.cast(), start, count, callback, posted) }
}

/// The first request of an array by the call for its kind.
pub fn post_single(requests: Array, ctx: usize) -> c_int {
    let ctx = ptr::without_provenance_mut(ctx);
    // SAFETY: the array is there.
    let wr = unsafe { &*requests.start };
    if wr.opcode == AMR_OP_DEREG_MR {
        // SAFETY: the operand of this opcode.
        let amr_dereg_mr { mr } = unsafe { wr.op.dereg_mr };
        // SAFETY: see above.
        return unsafe { single::amr_deregister_async(mr, Some(on_end), ctx) };
    }
    // SAFETY: the operand of the other opcode.
    let amr_reg_mr { pd, addr, length, access, .. } = unsafe { wr.op.reg_mr };
    single::amr_register_async(pd, addr, length, access as c_int, Some(on_end), ctx)
}

pub fn single_without_callback() -> [c_int; 2] {
    let (pd, addr) = (ptr::dangling_mut(), ptr::dangling_mut());
    let registration = single::amr_register_async(pd, addr, 1, 0, None, ptr::null_mut());
    // SAFETY: it is refused for want of a callback.
    let deregistration =
        unsafe { single::amr_deregister_async(ptr::null_mut(), None, ptr::null_mut()) };
    [registration, deregistration]
}

pub fn cancel(queue: QueuePtr, wr_id: u64) -> c_int {
    // SAFETY: see above.
    unsafe { post::amr_cancel(queue.0.cast(), wr_id) }
}

pub fn stats(engine: EnginePtr) -> Result<amr_stats, c_int> {
    let mut stats = stats_of_size(size_of::<amr_stats>());
    // SAFETY: see above; a struct of the size that it says.
    match unsafe { info::amr_query_stats(engine.0.cast(), &raw mut stats) } {
        0 => Ok(stats),
        status => Err(status),
    }
}

/// Asking for statistics in a struct of a size that is refused.
pub fn stats_in(engine: EnginePtr, size: usize) -> c_int {
    let mut stats = stats_of_size(size);
    // SAFETY: see above; the size is refused before anything is written.
    unsafe { info::amr_query_stats(engine.0.cast(), &raw mut stats) }
}

fn stats_of_size(size: usize) -> amr_stats {
    // SAFETY: numbers only.
    let zeros: amr_stats = unsafe { MaybeUninit::zeroed().assume_init() };
    amr_stats { size, ..zeros }
}

// ---- callbacks -----------------------------------------------------------------

/// What a callback was told.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub status: i32,
    /// The address of the region.
    pub mr: usize,
    /// Of a whole completion: its opcode.
    pub opcode: Option<u32>,
    /// On which thread.
    pub thread: ThreadId,
    /// What a call answered that would wait for this very callback.
    pub waits: Option<c_int>,
}

static TOLD: Mutex<Option<HashMap<u64, Vec<Told>>>> = Mutex::new(None);
/// The engine that each request with a callback was posted to.
static POSTED_TO: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before a request with a callback is posted.
pub fn expect_callback(id: u64, engine: EnginePtr) {
    lock(&POSTED_TO).get_or_insert_default().insert(id, engine.0.expose_provenance());
}

/// The callbacks that were called for a request since the last look.
pub fn take_told(id: u64) -> Vec<Told> {
    lock(&TOLD).get_or_insert_default().remove(&id).unwrap_or_default()
}

/// The requests whose callbacks nobody has taken note of; forgets all.
pub fn forget_told() -> Vec<u64> {
    lock(&POSTED_TO).get_or_insert_default().clear();
    lock(&TOLD).get_or_insert_default().drain().map(|(id, _)| id).collect()
}

/// A request is over. Whatever would wait for the calling worker has to say so.
fn tell(id: u64, status: i32, mr: usize, opcode: Option<u32>) {
    let engine = lock(&POSTED_TO).get_or_insert_default().get(&id).copied();
    let engine = engine.map(|engine| EnginePtr(ptr::with_exposed_provenance_mut(engine)));
    let waits = engine.map(|engine| drain(engine, 0, 0));
    let told = Told { status, mr, opcode, thread: thread::current().id(), waits };
    lock(&TOLD).get_or_insert_default().entry(id).or_default().push(told);
}

unsafe extern "C" fn on_completion(wc: *const amr_wc) {
    // SAFETY: the library gives a completion for the time of this call.
    let wc = unsafe { &*wc };
    tell(wc.wr_id, wc.status, wc.mr.addr(), Some(wc.opcode));
}

/// For whatever the library calls a region: the test cannot name it.
unsafe extern "C" fn on_end<T>(mr: *mut T, status: c_int, ctx: *mut c_void) {
    tell(ctx.addr() as u64, status, mr.addr(), None);
}
