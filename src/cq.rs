//! Completion queues as C sees them.

use crate::core::completions::Completions;
use crate::core::engine::Cancel;
use crate::core::request::{Completion, Delivery, Operation, Outcome, Request, Words};
use crate::errno::{Errno, Result};
use crate::ffi::cq::{AMR_MAX_CQ_CAPACITY, amr_wc};
use crate::ffi::guard::Room;
use crate::ffi::post::amr_wr;
use crate::host::{self, EngineHandle, Shared, pointer};
use crate::log::{self, Level};
use crate::os::{EventFd, Memory};
use crate::verbs::ibv_mr;
use crate::{intake, lifecycle, verbs};
use libc::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// `struct amr_cq`
pub struct CqHandle {
    completions: Completions<EventFd>,
    engine: Arc<Shared>,
}

impl CqHandle {
    /// Makes a completion queue for a C caller.
    pub fn create(engine: &EngineHandle, capacity: u32) -> Result<*mut Self> {
        if !(1..=AMR_MAX_CQ_CAPACITY).contains(&capacity) {
            return Err(Errno::EINVAL);
        }
        let engine = Arc::clone(engine.shared());
        if engine.core.is_halted() {
            return Err(Errno::ESHUTDOWN);
        }
        let _making = lifecycle::make();
        let memory = Memory::now();
        let completions = Completions::new(capacity, EventFd::new()?)?;
        let queue = Box::new(Self { completions, engine });
        if memory.ran_out() {
            return Err(Errno(libc::ENOMEM));
        }
        queue.engine.queues.fetch_add(1, Ordering::AcqRel);
        Ok(Box::into_raw(queue))
    }

    /// The queue of a handle.
    ///
    /// # Safety
    /// `cq` is NULL or alive for `'a`.
    pub unsafe fn from_ptr<'a>(cq: *mut Self) -> Result<&'a Self> {
        // SAFETY: the caller gives NULL or a live queue.
        let cq = unsafe { cq.as_ref() }.ok_or(Errno::EINVAL)?;
        lifecycle::check_generation(cq.engine.generation)?;
        Ok(cq)
    }

    /// Ends a queue, with what is unread in it.
    ///
    /// # Safety
    /// `cq` is NULL or alive, and nobody else uses it.
    pub unsafe fn destroy(cq: *mut Self) -> Result<()> {
        {
            // SAFETY: the caller gives NULL or a live queue.
            let queue = unsafe { Self::from_ptr(cq) }?;
            queue.leave_engine()?;
            queue.deregister_unread();
            queue.engine.queues.fetch_sub(1, Ordering::AcqRel);
        }
        // SAFETY: create() made it of a box; no request and no worker knows it any more.
        drop(unsafe { Box::from_raw(cq) });
        Ok(())
    }

    /// `EBUSY` while requests are under way; else no worker uses the queue after this.
    fn leave_engine(&self) -> Result<()> {
        let core = &self.engine.core;
        if core.is_halted() {
            // Requests that were queued will never complete.
            return if core.is_owner_served(self.owner()) { Err(Errno::EBUSY) } else { Ok(()) };
        }
        if self.completions.is_awaiting() {
            return Err(Errno::EBUSY);
        }
        core.wait_delivered(self.owner());
        Ok(())
    }

    /// Nobody else knows the regions of completions that were not read.
    fn deregister_unread(&self) {
        self.completions.poll(usize::MAX, |_, words| {
            let completion = Completion::decode(&words);
            let unknown = completion.operation == Operation::Register
                && completion.outcome.status == 0
                && !self.engine.core.is_halted();
            if unknown {
                self.deregister(pointer(completion.outcome.region));
            }
        });
    }

    /// Deregisters a region that was made for a completion that nobody has read.
    fn deregister(&self, mr: *mut ibv_mr) {
        // SAFETY: the region is alive, and nobody else knows it.
        let length = unsafe { &*mr }.length as u64;
        // SAFETY: the same.
        match unsafe { verbs::deregister(mr) } {
            Ok(()) => self.engine.core.count_deregistered(length),
            Err(error) => log::write(
                Level::Warn,
                format_args!("an unread region could not be deregistered: {error}"),
            ),
        }
    }

    /// The descriptor, which follows the queue from now on.
    pub fn watched_fd(&self) -> c_int {
        self.completions.watch().fd()
    }

    /// Puts a completion in its reserved place.
    pub fn complete(&self, completion: &Completion) {
        self.completions.complete(&completion.encode());
    }

    /// Reads completions.
    pub fn poll(&self, mut room: Room<amr_wc>) -> c_int {
        let limit = room.len();
        let count = self.completions.poll(limit, |index, words| {
            room.put(index, to_wc(&Completion::decode(&words)));
        });
        // At most num_entries, which is a c_int.
        count as c_int
    }

    /// Reads completions; waits for the first.
    pub fn wait(&self, mut room: Room<amr_wc>, timeout_ms: c_int) -> Result<c_int> {
        let remaining = host::deadline(timeout_ms)?;
        self.engine.check_not_in_callback()?;
        loop {
            let count = self.poll(room.again());
            let left = remaining();
            if count > 0 || left == Some(Duration::ZERO) {
                return Ok(count);
            }
            if self.engine.core.is_halted() {
                return Err(Errno::ESHUTDOWN);
            }
            self.completions.sleep(left);
        }
    }

    /// Takes work requests until one is refused; `taken` counts them.
    ///
    /// # Safety
    /// The operands name NULL or live objects, as the opcodes say.
    pub unsafe fn post(&self, requests: &[amr_wr], taken: &mut usize) -> Result<()> {
        let address = |request, submitted| {
            let request = Request { delivery: Delivery::Queue, owner: self.owner(), ..request };
            self.engine.receive(request, submitted)
        };
        // SAFETY: the caller vouches for the operands.
        unsafe { intake::work_requests(requests, address, |batch| self.submit(batch, taken)) }
    }

    /// Cancels a queued request.
    pub fn cancel(&self, wr_id: u64) -> Result<()> {
        let owner = self.owner();
        let matches = |request: &Request| request.owner == owner && request.tag == wr_id;
        match self.engine.core.cancel(matches) {
            Cancel::Cancelled => Ok(()),
            Cancel::Running => Err(Errno::EALREADY),
            Cancel::NotFound => Err(Errno::ENOENT),
        }
    }

    /// All of the batch or `EAGAIN`; a place for each completion first.
    fn submit(&self, batch: &[Words], taken: &mut usize) -> Result<()> {
        let places = self.completions.reserve(batch.len());
        let submitted = self.engine.submit(batch, places);
        let accepted = *submitted.as_ref().unwrap_or(&0);
        self.completions.release(places - accepted);
        *taken += accepted;
        submitted?;
        if accepted < batch.len() { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// What the requests of this queue know it by.
    fn owner(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }
}

/// As C reads it.
pub fn to_wc(completion: &Completion) -> amr_wc {
    let Outcome { status, diag, diag_arg, region } = completion.outcome;
    amr_wc {
        wr_id: completion.tag,
        opcode: completion.operation as u32,
        status,
        diag,
        reserved0: 0,
        mr: pointer(region),
        queued_ns: completion.queued_ns,
        busy_ns: completion.busy_ns,
        diag_arg,
        populate_ns: completion.populate_ns,
    }
}
