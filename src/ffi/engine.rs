//! Engines: worker pools and their submission queues.

use super::guard;
use crate::config::Config;
use crate::extensible::Extensible;
use crate::host::EngineHandle;
use crate::verbs::ibv_pd;
use crate::{default_engine, host};
use libc::{c_char, c_int, size_t};

/// Most workers that an engine can have.
pub const AMR_MAX_WORKERS: u32 = 64;
/// Deepest submission queue that an engine can have.
pub const AMR_MAX_QUEUE_DEPTH: u32 = 1048576;

/// Leave it to the verbs call to fault buffers in.
pub const AMR_ENGINE_NO_PREFAULT: u32 = 1;
/// Treat each registration as with AMR_WR_HUGEPAGE.
pub const AMR_ENGINE_HUGEPAGE: u32 = 2;

/// How an engine is made. Set `size` to sizeof(struct amr_engine_attr) and the
/// rest to zero but for what is wanted otherwise.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct amr_engine_attr {
    /// sizeof(struct amr_engine_attr) of the caller.
    pub size: size_t,
    /// Worker threads, 1 to AMR_MAX_WORKERS; 0: AMR_WORKERS or the number of
    /// CPUs that the process could use when the library was loaded, at most 8.
    pub workers: u32,
    /// Requests that can wait for a worker, 1 to AMR_MAX_QUEUE_DEPTH, rounded
    /// up to a power of two; 0: AMR_QUEUE_DEPTH or 16384. As many of each of the
    /// four kinds: small or large (2 MiB and more), urgent or not.
    pub queue_depth: u32,
    /// CPUs of the workers as a list like "0-3,8"; NULL: AMR_CPUS, or those that
    /// the process could use when the library was loaded, wherever its threads are
    /// bound now. Not kept.
    pub cpus: *const c_char,
    /// AMR_ENGINE_* bits; what they leave open comes from AMR_PREFAULT and
    /// AMR_HUGEPAGE.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// Create an engine: a pool of worker threads with a submission queue.
///
/// It serves any PD of any device. `attr` NULL means all defaults. The threads
/// are started before this returns; they are named "amr-…", block all signals,
/// and the caller's signal mask and affinity stay as they were.
///
/// Ends with amr_destroy_engine(). Returns NULL and sets errno: EINVAL (a value
/// out of its range, an unknown flag, a CPU list that cannot be read or names no CPU that the
/// process may use, attr->size 0 or no multiple of sizeof(size_t)), E2BIG (attr is larger than this
/// library knows and its tail is not zero, or attr->size is above 4096: it was
/// not set), EAGAIN (a thread could not be made;
/// nothing is left behind), ENOMEM, ESHUTDOWN (the process is exiting), EIO (a
/// fault inside the library).
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_create_engine(attr: *const amr_engine_attr) -> *mut EngineHandle {
    guard::pointer(|| {
        // SAFETY: the caller gives NULL or a struct of the size that it says.
        let attr = unsafe { Extensible::read_or_default(attr) }?;
        // SAFETY: the caller gives NULL or a string.
        let config = unsafe { Config::from_attr(&attr) }?;
        EngineHandle::create(&config)
    })
}

/// Destroy an engine: its threads are joined.
///
/// Its completion queues must be destroyed first, so nothing of theirs is
/// queued or running on it any more. Requests of amr_post_callback() that are
/// queued complete with ECANCELED, running ones as they do, before this
/// returns. On an error the engine is unharmed.
///
/// Returns 0, or EINVAL (NULL, or the default engine, which lives as long as
/// the process), EBUSY (completion queues of the engine are alive), EDEADLK
/// (called in a callback of this engine), EPERM (the engine was made before
/// fork()), EIO.
///
/// Any thread; the engine must not be used by another thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_destroy_engine(engine: *mut EngineHandle) -> c_int {
    guard::status(|| {
        // SAFETY: the caller gives NULL or a live engine that nobody else uses.
        unsafe { EngineHandle::destroy(engine) }
    })
}

/// The process-wide engine, made on first use.
///
/// The environment configures it: AMR_WORKERS (1 to 64), AMR_QUEUE_DEPTH (1 to
/// 1048576), AMR_CPUS (a list like "0-3,8"), AMR_PREFAULT (0: leave it to the
/// verbs call to fault buffers in) and AMR_HUGEPAGE (1: treat each registration as
/// with AMR_WR_HUGEPAGE). A bad value gives one line on
/// standard error and the default. It lives as long as the process and cannot
/// be destroyed. A forked child gets a new one.
///
/// Returns NULL and sets errno: EAGAIN (a thread could not be made), ENOMEM,
/// ESHUTDOWN (the process is exiting), EIO; a later call tries again. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn amr_default_engine() -> *mut EngineHandle {
    guard::pointer(|| default_engine::get().map(EngineHandle::as_ptr))
}

/// Wait until nothing is queued or running on a PD.
///
/// Of requests submitted before the call none is left when it returns 0: the
/// verbs calls are done, the completions can be read, the callbacks have
/// returned. Then ibv_dealloc_pd() finds no request of libamr on the PD.
/// Requests that other threads go on submitting make it wait longer.
///
/// `engine` NULL: the default engine. `pd` NULL: every PD. `timeout_ms` -1: no
/// limit; 0: only look.
///
/// Returns 0, or ETIMEDOUT, EDEADLK (called in a callback of this engine),
/// EPERM (the engine was made before fork()), EINVAL (timeout_ms below -1),
/// ESHUTDOWN (the process is exiting; requests that are queued stay so), EIO;
/// with engine NULL also what amr_default_engine() gives.
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amr_drain(
    engine: *mut EngineHandle,
    pd: *mut ibv_pd,
    timeout_ms: c_int,
) -> c_int {
    guard::status(|| {
        // SAFETY: the caller gives NULL or a live engine.
        let engine = unsafe { EngineHandle::or_default(engine) }?;
        host::drain(engine, pd, timeout_ms)
    })
}
