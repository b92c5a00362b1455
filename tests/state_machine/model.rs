//! What the contract says, for one thread that asks: plain and one thing after another.
//!
//! Workers do as they like where the contract does not bind them, so some answers are
//! sets: how many requests find room while workers take others out, and whether a
//! large request that a worker may have looked at still waits. The rest is exact
//! while the workers are at rest: each of them has nothing to do or is inside the
//! device.

use crate::device::{Call, Outcome, Region};
use amr::ffi::cq::{AMR_DIAG_NONE, AMR_DIAG_UNSUPPORTED, amr_wc};
use amr::ffi::info::amr_stats;
use amr::ffi::post::{AMR_OP_DEREG_MR, AMR_OP_REG_MR};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

pub type Check<T = ()> = Result<T, TestCaseError>;

/// The number of a request.
pub type Id = usize;

/// How often a call is tried that fails for the moment.
const MOST_ATTEMPTS: usize = 6;
/// Requests that are taken in one go.
const BATCH: usize = 64;
/// From this length on a request is large; its memory is faulted in by slices.
const LARGE: u64 = 2 << 20;
/// From this length on one worker stays free of such calls.
const LONG: u64 = 64 << 20;
/// Long ones that a test has under way on an engine; more could keep other large
/// ones from a free worker.
pub const MOST_LONG: usize = 2;

/// The queues of an engine: small urgent requests, small ones, large urgent ones,
/// large ones.
const LANES: usize = 4;
const FIRST_LARGE: usize = 2;

pub fn is_large(length: u64) -> bool {
    length >= LARGE
}

pub fn is_long(length: u64) -> bool {
    length >= LONG
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Queue(usize),
    Callback,
    /// `amr_callback`, which gets no whole completion.
    ShortCallback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Queued,
    /// A large one that a worker has begun with.
    Begun,
    /// Between two attempts.
    Waiting,
    Inside,
    Over,
}

/// Requests of the same kind that follow one another are queued in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub lane: usize,
    pub huge: bool,
    pub prefault: bool,
}

impl Kind {
    pub fn new(urgent: bool, large: bool, huge: bool, prefault: bool) -> Self {
        let lane = usize::from(!urgent) + if large { FIRST_LARGE } else { 0 };
        Self { lane, huge, prefault: prefault && large }
    }
}

#[derive(Clone, Debug)]
pub struct Request {
    pub engine: usize,
    pub owner: Owner,
    pub call: Call,
    pub pd: usize,
    pub length: u64,
    pub wr_id: u64,
    pub kind: Kind,
    /// The command that posted it.
    pub command: usize,
    pub state: State,
    pub attempts: Vec<Outcome>,
    /// It counts as a long call while it runs.
    runs_long: bool,
}

impl Request {
    pub fn new(
        engine: usize,
        owner: Owner,
        call: Call,
        pd: usize,
        length: u64,
        kind: Kind,
    ) -> Self {
        Self {
            engine,
            owner,
            call,
            pd,
            length,
            wr_id: 0,
            kind,
            command: 0,
            state: State::Queued,
            attempts: Vec::new(),
            runs_long: false,
        }
    }

    pub fn is_long(&self) -> bool {
        self.kind.lane >= FIRST_LARGE && is_long(self.length)
    }

    pub fn opcode(&self) -> u32 {
        match self.call {
            Call::Register { .. } => AMR_OP_REG_MR,
            Call::Deregister(_) => AMR_OP_DEREG_MR,
        }
    }

    /// The region of a completion with this status, if the call made none.
    fn region_after(&self, status: i32) -> Option<Region> {
        match self.call {
            Call::Deregister(region) if status != 0 => Some(region),
            _ => None,
        }
    }

    /// How it ends after the attempts that were made; `None`: not yet.
    pub fn end(&self) -> Option<(i32, Option<Region>)> {
        match *self.attempts.last()? {
            Ok(region) => Some((0, region)),
            Err(failure) => {
                let status = failure.status();
                let is_last = self.attempts.len() == MOST_ATTEMPTS || !is_transient(status);
                is_last.then(|| (status, self.region_after(status)))
            }
        }
    }

    pub fn cancelled(&self) -> (i32, Option<Region>) {
        (libc::ECANCELED, self.region_after(libc::ECANCELED))
    }

    /// The region that the request holds.
    fn holds(&self) -> Option<Region> {
        match (self.attempts.last(), self.call) {
            (Some(Ok(made)), _) => *made,
            (_, Call::Deregister(region)) => Some(region),
            _ => None,
        }
    }
}

pub fn is_transient(status: i32) -> bool {
    matches!(status, libc::EAGAIN | libc::EINTR)
}

/// A completion that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub wr_id: u64,
    pub opcode: u32,
    pub status: i32,
    pub region: Option<Region>,
    pub pd: usize,
    pub length: u64,
    /// `IBV_ACCESS_*` bits of a registration.
    access: u32,
}

impl Completion {
    fn of(request: &Request, (status, region): (i32, Option<Region>)) -> Self {
        let access = match request.call {
            Call::Register { access, .. } => access,
            Call::Deregister(_) => 0,
        };
        Self {
            wr_id: request.wr_id,
            opcode: request.opcode(),
            status,
            region,
            pd: request.pd,
            length: request.length,
            access,
        }
    }

    fn is_told_by(&self, wc: &amr_wc) -> bool {
        let mr = self.region.map_or(0, |region| region.address);
        let told = (wc.wr_id, wc.opcode, wc.status, wc.reserved0, wc.mr.addr());
        told == (self.wr_id, self.opcode, self.status, 0, mr)
            && self.diagnosis().is_none_or(|expected| (wc.diag, wc.diag_arg) == expected)
    }

    /// What is found out about a failure, where that depends on nothing else.
    fn diagnosis(&self) -> Option<(u32, u64)> {
        match (self.opcode, self.status) {
            (AMR_OP_REG_MR, libc::EOPNOTSUPP) => Some((AMR_DIAG_UNSUPPORTED, self.access.into())),
            (AMR_OP_REG_MR, libc::EFAULT | libc::ENOMEM | libc::EIO) => None,
            _ => Some((AMR_DIAG_NONE, 0)),
        }
    }
}

#[derive(Clone, Debug)]
struct Slot {
    id: Id,
    withdrawn: bool,
    /// A worker may have taken it out.
    passed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    submitted: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    registered_bytes: u64,
}

impl From<&amr_stats> for Counts {
    fn from(stats: &amr_stats) -> Self {
        Self {
            submitted: stats.submitted,
            completed: stats.completed,
            failed: stats.failed,
            cancelled: stats.cancelled,
            registered_bytes: stats.registered_bytes,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Engine {
    pub is_alive: bool,
    pub queues: usize,
    workers: usize,
    depth: usize,
    lanes: [VecDeque<Slot>; LANES],
    counts: Counts,
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub is_alive: bool,
    pub engine: usize,
    pub under_way: usize,
    capacity: usize,
    /// Oldest first; those of one group in any order.
    unread: VecDeque<Vec<Completion>>,
}

impl Queue {
    pub fn unread(&self) -> impl Iterator<Item = &Completion> {
        self.unread.iter().flatten()
    }

    pub fn places(&self) -> usize {
        self.capacity - self.under_way - self.unread().count()
    }
}

/// What `amr_cancel()` may answer.
#[derive(Debug)]
pub enum Cancel {
    Cancelled(Id),
    /// That, or that it is running.
    Maybe(Id),
    Running,
    NotFound,
}

#[derive(Default)]
pub struct Model {
    pub engines: Vec<Engine>,
    pub queues: Vec<Queue>,
    pub requests: Vec<Request>,
}

impl Model {
    pub fn add_engine(&mut self, workers: usize, depth: usize, counts: Counts) -> usize {
        self.engines.push(Engine {
            is_alive: true,
            queues: 0,
            workers,
            depth: depth.next_power_of_two(),
            lanes: Default::default(),
            counts,
        });
        self.engines.len() - 1
    }

    pub fn add_queue(&mut self, engine: usize, capacity: usize) -> usize {
        self.engines[engine].queues += 1;
        let unread = VecDeque::new();
        self.queues.push(Queue { is_alive: true, engine, under_way: 0, capacity, unread });
        self.queues.len() - 1
    }

    pub fn alive_engines(&self) -> Vec<usize> {
        (0..self.engines.len()).filter(|&engine| self.engines[engine].is_alive).collect()
    }

    pub fn alive_queues(&self) -> Vec<usize> {
        (0..self.queues.len()).filter(|&queue| self.queues[queue].is_alive).collect()
    }

    pub fn unfinished(&self) -> impl Iterator<Item = (Id, &Request)> {
        self.requests.iter().enumerate().filter(|(_, request)| request.state != State::Over)
    }

    pub fn unfinished_of(&self, engine: usize) -> Vec<Id> {
        self.unfinished().filter(|(_, r)| r.engine == engine).map(|(id, _)| id).collect()
    }

    /// The request that makes a call.
    pub fn maker(&self, call: &Call) -> Option<Id> {
        self.unfinished().find(|(_, request)| request.call == *call).map(|(id, _)| id)
    }

    fn count(&self, engine: usize, is_so: impl Fn(&Request) -> bool) -> usize {
        self.unfinished().filter(|(_, r)| r.engine == engine && is_so(r)).count()
    }

    pub fn free_workers(&self, engine: usize) -> usize {
        self.engines[engine].workers - self.count(engine, |r| r.state == State::Inside)
    }

    pub fn longs(&self, engine: usize) -> usize {
        self.count(engine, Request::is_long)
    }

    // ---- posting ---------------------------------------------------------------

    /// How many of requests that are in order find room, with so many places for
    /// completions. `flows`: workers take out whatever comes.
    pub fn room(
        &self,
        engine: usize,
        places: Option<usize>,
        kinds: &[Kind],
        flows: bool,
    ) -> RangeInclusive<usize> {
        // What workers take out while the call goes on; the first push is before that.
        let free = self.free_workers(engine);
        let large = &self.engines[engine].lanes[FIRST_LARGE..];
        let is_large = |kind: &Kind| kind.lane >= FIRST_LARGE;
        let has_large = large.iter().any(|lane| !lane.is_empty()) || kinds.iter().any(is_large);
        let taken_out = if flows || (free > 0 && has_large) { usize::MAX / 2 } else { free };
        let least = self.fit(engine, places, kinds, |_| true, 0);
        let most = self.fit(engine, places, kinds, |slot| !slot.passed, taken_out);
        least..=most
    }

    fn fit(
        &self,
        engine: usize,
        places: Option<usize>,
        kinds: &[Kind],
        takes_room: impl Fn(&Slot) -> bool,
        taken_out: usize,
    ) -> usize {
        let Engine { depth, lanes, .. } = &self.engines[engine];
        let used = |lane: &VecDeque<Slot>| lane.iter().filter(|slot| takes_room(slot)).count();
        let mut room: Vec<usize> = lanes.iter().map(|l| depth.saturating_sub(used(l))).collect();
        let (mut places, mut total, mut extra) = (places.unwrap_or(usize::MAX), 0, 0);
        for batch in kinds.chunks(BATCH) {
            let mut taken = 0;
            for alike in batch[..places.min(batch.len())].chunk_by(|a, b| a == b) {
                let lane = alike[0].lane;
                let count = alike.len().min(room[lane] + extra);
                room[lane] = room[lane].saturating_sub(count);
                taken += count;
                extra = taken_out;
                if count < alike.len() {
                    break;
                }
            }
            places -= taken;
            total += taken;
            if taken < batch.len() {
                break;
            }
        }
        total
    }

    pub fn accept(&mut self, request: Request) {
        let id = self.requests.len();
        let engine = &mut self.engines[request.engine];
        engine.counts.submitted += 1;
        let lane = &mut engine.lanes[request.kind.lane];
        lane.push_back(Slot { id, withdrawn: false, passed: false });
        // There was room for it, so the oldest is not there any more.
        if lane.len() > engine.depth && (lane[0].passed || request.kind.lane >= FIRST_LARGE) {
            self.take_out(request.engine, request.kind.lane, 0);
        }
        if let Owner::Queue(queue) = request.owner {
            self.queues[queue].under_way += 1;
        }
        self.requests.push(request);
    }

    /// A slot has been left by what was in it.
    fn take_out(&mut self, engine: usize, lane: usize, index: usize) {
        let slot = self.engines[engine].lanes[lane].remove(index);
        if let Some(Slot { id, withdrawn: false, .. }) = slot {
            self.requests[id].state = State::Begun;
        }
    }

    // ---- workers ---------------------------------------------------------------

    /// Free workers have looked for work, or may have.
    pub fn pass(&mut self, engines: &[usize]) {
        for &engine in engines {
            if self.free_workers(engine) == 0 {
                continue;
            }
            for (index, lane) in self.engines[engine].lanes.iter_mut().enumerate() {
                let is_large = index >= FIRST_LARGE;
                lane.iter_mut()
                    .take_while(|slot| is_large || slot.withdrawn)
                    .for_each(|slot| slot.passed = true);
            }
        }
    }

    /// How many calls of an engine are inside once its workers are at rest.
    pub fn calls_at_rest(&self, engine: usize) -> usize {
        let workers = self.engines[engine].workers;
        let running = self.count(engine, |r| r.state == State::Inside);
        let long_calls = self.count(engine, |r| r.state == State::Inside && r.runs_long);
        let awaits_turn =
            |r: &Request| r.is_long() && matches!(r.state, State::Queued | State::Begun);
        let long = self.count(engine, awaits_turn);
        let others = self.count(engine, |r| r.state != State::Inside && !awaits_turn(r));
        let most_long = workers.saturating_sub(1).max(1).saturating_sub(long_calls);
        workers.min(running + others + long.min(most_long))
    }

    /// Calls for these requests are inside now: they were chosen as they had to be.
    pub fn start(&mut self, engine: usize, ids: &[Id], command: usize) -> Check {
        for lane in 0..LANES {
            let slots = &self.engines[engine].lanes[lane];
            let last = slots.iter().rposition(|slot| ids.contains(&slot.id));
            for index in (0..last.map_or(0, |last| last + 1)).rev() {
                let Slot { id, withdrawn, .. } = self.engines[engine].lanes[lane][index];
                prop_assert!(
                    lane >= FIRST_LARGE || withdrawn || ids.contains(&id),
                    "request {id} was overtaken by one of its own kind"
                );
                self.take_out(engine, lane, index);
            }
        }
        for &id in ids {
            let request = &self.requests[id];
            let is_ordinary = request.state != State::Waiting && request.kind.lane == 1;
            let urgent = self.engines[engine].lanes[0]
                .iter()
                .find(|slot| !slot.withdrawn && self.requests[slot.id].command < command);
            prop_assert!(
                !is_ordinary || urgent.is_none(),
                "request {id} began before {urgent:?}, which is urgent"
            );
            let request = &mut self.requests[id];
            prop_assert!(request.end().is_none(), "request {id} is over and began once more");
            request.runs_long = request.is_long() && request.state != State::Waiting;
            request.state = State::Inside;
        }
        Ok(())
    }

    /// The device has done the call of a request.
    pub fn attempt(&mut self, id: Id, outcome: Outcome) -> Check {
        let request = &mut self.requests[id];
        prop_assert!(request.end().is_none(), "request {} was done once more", id);
        request.attempts.push(outcome);
        Ok(())
    }

    /// The call has returned, and there will be another.
    pub fn put_off(&mut self, id: Id) {
        self.requests[id].state = State::Waiting;
    }

    /// Requests are over, nobody knows in which order; says what is told of each.
    pub fn finish(&mut self, ends: &[(Id, (i32, Option<Region>))]) -> Vec<Completion> {
        let mut groups: Vec<Vec<Completion>> = vec![Vec::new(); self.queues.len()];
        let mut all = Vec::new();
        for &(id, end) in ends {
            let request = &mut self.requests[id];
            request.state = State::Over;
            let completion = Completion::of(request, end);
            let Engine { counts, lanes, .. } = &mut self.engines[request.engine];
            counts.add(&completion);
            lanes[request.kind.lane].retain(|slot| slot.id != id || slot.withdrawn);
            if let Owner::Queue(queue) = request.owner {
                self.queues[queue].under_way -= 1;
                groups[queue].push(completion.clone());
            }
            all.push(completion);
        }
        for (queue, group) in self.queues.iter_mut().zip(groups) {
            if !group.is_empty() {
                queue.unread.push_back(group);
            }
        }
        all
    }

    // ---- the other calls -------------------------------------------------------

    /// `None`: of two that are equally old either can be meant.
    pub fn cancel(&self, queue: usize, wr_id: u64) -> Option<Cancel> {
        let mine = || {
            let is_mine = move |r: &Request| r.owner == Owner::Queue(queue) && r.wr_id == wr_id;
            self.unfinished().filter(move |(_, request)| is_mine(request))
        };
        // Those of one call are equally old; of these, which were begun come first,
        // then urgent ones before others, small ones before large ones.
        let age = |request: &Request| {
            let waits = request.state == State::Waiting;
            (request.command, !waits, if waits { 0 } else { request.kind.lane })
        };
        let is_queued = |r: &Request| matches!(r.state, State::Queued | State::Waiting);
        let oldest = mine().filter(|(_, r)| is_queued(r)).min_by_key(|(id, r)| (age(r), *id));
        let Some((id, request)) = oldest else {
            let is_running = mine().next().is_some();
            return Some(if is_running { Cancel::Running } else { Cancel::NotFound });
        };
        let alike =
            |(other, r): (Id, &Request)| other != id && is_queued(r) && age(r) == age(request);
        if request.state == State::Waiting && mine().any(alike) {
            return None;
        }
        let mut slots = self.engines[request.engine].lanes[request.kind.lane].iter();
        let passed = slots.any(|slot| slot.id == id && slot.passed);
        Some(if passed { Cancel::Maybe(id) } else { Cancel::Cancelled(id) })
    }

    /// The queue holds the place of a cancelled request.
    pub fn withdraw(&mut self, id: Id) {
        let request = &self.requests[id];
        for slot in &mut self.engines[request.engine].lanes[request.kind.lane] {
            if slot.id == id {
                slot.withdrawn = true;
                slot.passed = false;
            }
        }
    }

    /// A worker has begun with a large request, as the library says.
    pub fn begin(&mut self, id: Id) {
        let Request { engine, kind, .. } = self.requests[id];
        let slots = &self.engines[engine].lanes[kind.lane];
        if let Some(last) = slots.iter().position(|slot| slot.id == id) {
            (0..=last).rev().for_each(|index| self.take_out(engine, kind.lane, index));
        }
    }

    /// Whether what was read is what had to be read; says what that was.
    pub fn read(&mut self, queue: usize, wcs: &[amr_wc]) -> Check<Vec<Completion>> {
        let unread = &mut self.queues[queue].unread;
        let mut read = Vec::new();
        for wc in wcs {
            let group = unread.front_mut();
            let Some(group) = group else {
                return Err(TestCaseError::fail(format!("nothing can be there: {}", show(wc))));
            };
            let Some(index) = group.iter().position(|expected| expected.is_told_by(wc)) else {
                return Err(TestCaseError::fail(format!("{} instead of {group:x?}", show(wc))));
            };
            let completion = group.swap_remove(index);
            if group.is_empty() {
                unread.pop_front();
            }
            prop_assert!(wc.populate_ns <= wc.busy_ns, "{} of {}", wc.populate_ns, wc.busy_ns);
            read.push(completion);
        }
        Ok(read)
    }

    /// A queue is gone, with what is unread: the regions of registrations go with it,
    /// those that were not deregistered are the application's again.
    pub fn drop_queue(&mut self, queue: usize) -> (BTreeSet<Region>, Vec<Completion>) {
        let queue = &mut self.queues[queue];
        queue.is_alive = false;
        let engine = &mut self.engines[queue.engine];
        engine.queues -= 1;
        let unread = queue.unread.drain(..).flatten();
        let (made, kept): (Vec<_>, _) = unread.partition(|c| c.opcode == AMR_OP_REG_MR);
        for completion in made.iter().filter(|completion| completion.status == 0) {
            let bytes = &mut engine.counts.registered_bytes;
            *bytes = bytes.wrapping_sub(completion.length);
        }
        (made.iter().filter_map(|completion| completion.region).collect(), kept)
    }

    pub fn check_stats(&self, engine: usize, stats: &amr_stats) -> Check {
        let Engine { workers, depth, counts, .. } = &self.engines[engine];
        let of = |state| self.count(engine, move |r| r.state == state) as u64;
        let slots = self.engines[engine].lanes.iter().flatten();
        let maybe = slots.filter(|slot| !slot.withdrawn && slot.passed).count() as u64;
        let queued = of(State::Queued) + of(State::Waiting);
        let running = of(State::Inside) + of(State::Begun);
        prop_assert_eq!((stats.workers, stats.queue_depth), (*workers as u32, *depth as u32));
        prop_assert_eq!(stats.submitted, counts.submitted);
        prop_assert_eq!(stats.completed, counts.completed);
        prop_assert_eq!((stats.failed, stats.cancelled), (counts.failed, counts.cancelled));
        prop_assert_eq!(stats.registered_bytes, counts.registered_bytes);
        prop_assert_eq!(stats.queued + stats.running, queued + running);
        let possible = running..=running + maybe;
        prop_assert!(possible.contains(&stats.running), "{} in {possible:?}", stats.running);
        prop_assert!(stats.queue_ns_max <= stats.queue_ns_total);
        prop_assert!(stats.busy_ns_max <= stats.busy_ns_total);
        prop_assert!(stats.populate_ns_max <= stats.populate_ns_total);
        Ok(())
    }

    /// The regions that requests and completions hold.
    pub fn held(&self) -> BTreeSet<Region> {
        let by_requests = self.unfinished().filter_map(|(_, request)| request.holds());
        let unread = self.queues.iter().flat_map(Queue::unread);
        by_requests.chain(unread.filter_map(|completion| completion.region)).collect()
    }
}

impl Counts {
    fn add(&mut self, completion: &Completion) {
        self.completed += 1;
        match (completion.status, completion.opcode) {
            (0, AMR_OP_REG_MR) => {
                self.registered_bytes = self.registered_bytes.wrapping_add(completion.length);
            }
            (0, _) => {
                self.registered_bytes = self.registered_bytes.wrapping_sub(completion.length);
            }
            (libc::ECANCELED, _) => self.cancelled += 1,
            _ => self.failed += 1,
        }
    }
}

fn show(wc: &amr_wc) -> String {
    let amr_wc { wr_id, opcode, status, mr, diag, diag_arg, .. } = wc;
    format!(
        "wr_id {wr_id}, opcode {opcode}, status {status}, region {mr:?}, diag {diag} ({diag_arg})"
    )
}
