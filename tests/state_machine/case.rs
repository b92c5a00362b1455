//! One sequence of commands: the library does each, the model says what it may
//! answer.
//!
//! After each command the workers come to rest, so that the model knows what is
//! queued and what runs. `amr_drain()` on the PD of a request, which is this request's
//! alone, tells when it is over; what it promises is looked at afterwards.

use crate::command::{
    Ask, Await, BadEngine, BadPost, BadRead, Buffer, Command, Pd, Script, Spoilt, What,
};
use crate::device::{self, Call, Region};
use crate::library::{self, Array, EnginePtr, LongAttr, NO_ENGINE, NO_QUEUE, QueuePtr, Told};
use crate::memory::Memory;
use crate::model::{
    Cancel, Check, Completion, Id, Kind, MOST_LONG, Model, Owner, Request, State, is_large,
    is_long, is_transient,
};
use crate::verbs::ibv_pd;
use amr::ffi::post::{
    AMR_OP_DEREG_MR, AMR_OP_REG_MR, AMR_WR_HUGEPAGE, AMR_WR_IOVA, AMR_WR_NO_PREFAULT,
    AMR_WR_URGENT, amr_dereg_mr, amr_op, amr_reg_mr, amr_wr,
};
use libc::c_int;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The default engine is always there.
const DEFAULT: usize = 0;
const MOST_ENGINES: usize = 3;
const MOST_QUEUES: usize = 4;
const PAGE: u64 = 4096;
const ON_DEMAND: u32 = 1 << 6;
/// No command cancels by it, unless it means one like this.
const FIRST_LARGE_ID: u64 = 1000;
/// No command cancels by it.
const NEVER_CANCELLED: u64 = 9;

/// A region that the application has.
#[derive(Clone, Copy, Debug)]
struct Owned {
    region: Region,
    pd: usize,
    length: u64,
}

/// A work request and what becomes of it at submit.
struct Made {
    wr: amr_wr,
    request: Result<Request, c_int>,
}

pub struct Case<'a> {
    model: Model,
    engines: Vec<EnginePtr>,
    queues: Vec<QueuePtr>,
    /// The descriptors that were asked for.
    fds: BTreeMap<usize, c_int>,
    owned: Vec<Owned>,
    /// PDs that requests were made for.
    pds: usize,
    memory: &'a Memory,
    is_open: bool,
    /// The number of the current command.
    now: usize,
    /// Tells the callbacks of this case from those of others.
    first_callback: u64,
    before: Resources,
    is_over: bool,
}

/// What a process has too little of.
#[derive(Debug, PartialEq, Eq)]
struct Resources {
    fds: usize,
    workers: usize,
}

impl Resources {
    fn now() -> Self {
        let entries = |folder| std::fs::read_dir(folder).expect("/proc is there").flatten();
        let is_worker = |task: &std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.starts_with("amr-"))
        };
        Self {
            fds: entries("/proc/self/fd").count(),
            workers: entries("/proc/self/task").filter(is_worker).count(),
        }
    }
}

/// The element that a number stands for.
fn pick<T: Copy>(all: &[T], number: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[number % all.len()])
}

fn patience_ms() -> c_int {
    device::patience().as_millis() as c_int
}

impl<'a> Case<'a> {
    pub fn run(script: &Script, memory: &'a Memory) -> Check {
        let mut case = Self::begin(memory)?;
        let Script { workers, depth, capacity, .. } = *script;
        case.create_engine(&LongAttr::new(workers, depth, 0))?;
        case.create_queue(1, capacity)?;
        for (number, command) in script.commands.iter().enumerate() {
            case.now = number + 1;
            device::note_progress();
            let add =
                |error| TestCaseError::fail(format!("command {number}, {command:?}: {error}"));
            case.perform(command).and_then(|()| case.check_rest()).map_err(add)?;
        }
        case.now += 1;
        device::note_progress();
        case.end()
    }

    fn begin(memory: &'a Memory) -> Check<Self> {
        static NEXT_CALLBACK: AtomicU64 = AtomicU64::new(1 << 32);
        device::reset();
        library::forget_told();
        let default = library::default_engine();
        prop_assert!(default != NO_ENGINE);
        let mut case = Self {
            model: Model::default(),
            engines: vec![default],
            queues: Vec::new(),
            fds: BTreeMap::new(),
            owned: Vec::new(),
            pds: 0,
            memory,
            is_open: false,
            now: 0,
            first_callback: NEXT_CALLBACK.fetch_add(1 << 32, Ordering::Relaxed),
            before: Resources::now(),
            is_over: false,
        };
        let stats = library::stats(default).map_err(fail)?;
        let (workers, depth) = (stats.workers as usize, stats.queue_depth as usize);
        case.model.add_engine(workers, depth, (&stats).into());
        // After a case that has failed it may have requests that will never end.
        case.model.engines[DEFAULT].is_alive = library::drain(default, 0, 0) == 0;
        Ok(case)
    }

    fn perform(&mut self, command: &Command) -> Check {
        match *command {
            Command::CreateEngine { workers, depth, flags, newer } => {
                let mut attr = LongAttr::new(workers, depth, flags);
                attr.attr.size += if newer { size_of_val(&attr.tail) } else { 0 };
                if self.model.alive_engines().len() < MOST_ENGINES {
                    self.create_engine(&attr)?;
                }
                Ok(())
            }
            Command::CreateBadEngine(how) => create_bad_engine(how),
            Command::DestroyEngine { engine, waits } => self.destroy_engine(engine, waits),
            Command::CreateQueue { engine, capacity } => {
                let (engine, _) = self.engine(engine);
                if self.model.alive_queues().len() < MOST_QUEUES {
                    self.create_queue(engine, capacity)?;
                }
                Ok(())
            }
            Command::CreateBadQueue { engine, capacity } => {
                let (_, engine) = self.engine(engine);
                prop_assert_eq!(library::create_queue(engine, capacity), Err(libc::EINVAL));
                Ok(())
            }
            Command::DestroyQueue { queue } => self.destroy_queue(queue),
            Command::Post { queue, ref asks, counts } => self.post(queue, asks, counts),
            Command::PostCallback { engine, ref asks, counts } => {
                self.post_callback(engine, asks, counts)
            }
            Command::PostMany { queue, count } => {
                let what =
                    What::Register { buffer: Buffer::Part(0, 1), access: 0, iova: false, flags: 0 };
                let ask = Ask { what, urgent: false, id: NEVER_CANCELLED, spoilt: None };
                self.post(queue, &vec![ask; count], true)
            }
            Command::PostBadly(how) => self.post_badly(how),
            Command::Single(ref ask) => self.post_single(ask),
            Command::Cancel { queue, id } => self.cancel(queue, id),
            Command::Read { queue, limit, timeout_ms } => self.read(queue, limit, timeout_ms),
            Command::ReadBadly { queue, how } => self.read_badly(queue, how),
            Command::Await { call, how, waits } => self.await_call(call, how, waits),
            Command::Drain { engine, pd, timeout_ms } => self.drain(engine, pd, timeout_ms),
            Command::Stats { engine } => {
                let (engine, pointer) = self.engine(engine);
                self.check_stats(engine, pointer)
            }
            Command::Watch { queue } => self.watch(queue),
            Command::SetGate { open } => {
                self.is_open = open;
                device::set_open(open);
                self.come_to_rest()
            }
            Command::Fail { failure, times } => {
                (0..times).for_each(|_| device::fail_next(failure));
                Ok(())
            }
            Command::Perform { call } => {
                if let Some((ticket, _)) = self.call(call) {
                    device::perform(ticket);
                    self.note_attempts()?;
                }
                Ok(())
            }
            Command::LetGo { call } => {
                let Some((ticket, id)) = self.call(call) else { return Ok(()) };
                device::let_go(ticket);
                self.has_returned(ticket, id)?;
                self.come_to_rest()
            }
        }
    }

    // ---- what a number stands for ------------------------------------------------

    /// A live engine; the default one by its handle or by NULL.
    fn engine(&self, number: usize) -> (usize, EnginePtr) {
        let alive = self.model.alive_engines();
        let engine = alive[number % alive.len()];
        let by_null = engine == DEFAULT && number >= alive.len();
        (engine, if by_null { NO_ENGINE } else { self.engines[engine] })
    }

    fn queue(&self, number: usize) -> Option<(usize, QueuePtr)> {
        let queue = pick(&self.model.alive_queues(), number)?;
        Some((queue, self.queues[queue]))
    }

    /// A call that is inside, and its request.
    fn call(&self, number: usize) -> Option<(u64, Id)> {
        let inside = device::with(|state| state.inside().to_vec());
        let calls: Vec<_> = inside
            .iter()
            .filter_map(|inside| Some((inside.ticket, self.model.maker(&inside.call)?)))
            .collect();
        pick(&calls, number)
    }

    fn new_pd(&mut self) -> usize {
        self.pds += 1;
        device::pd(self.pds - 1)
    }

    // ---- engines and queues --------------------------------------------------------

    fn create_engine(&mut self, attr: &LongAttr) -> Check {
        let engine = library::create_engine(attr).map_err(fail)?;
        let (workers, depth) = (attr.attr.workers as usize, attr.attr.queue_depth as usize);
        self.model.add_engine(workers, depth, Default::default());
        self.engines.push(engine);
        Ok(())
    }

    fn destroy_engine(&mut self, number: usize, waits: bool) -> Check {
        let (engine, pointer) = self.engine(number);
        if engine == DEFAULT {
            // NULL is no engine here.
            prop_assert_eq!(library::destroy_engine(pointer), libc::EINVAL);
            return Ok(());
        }
        if self.model.engines[engine].queues > 0 {
            let status = library::destroy_engine(pointer);
            // What should not have gone is not to be used all the same.
            self.model.engines[engine].is_alive = status != 0;
            prop_assert_eq!(status, libc::EBUSY);
            return Ok(());
        }
        let ids = self.model.unfinished_of(engine);
        let pds = ids.iter().map(|&id| self.model.requests[id].pd).collect();
        let status = later(waits, move || device::free(pds), || library::destroy_engine(pointer));
        device::free(HashSet::new());
        prop_assert_eq!(status, 0);
        self.model.engines[engine].is_alive = false;
        self.note_attempts()?;
        // What the device has not done was still queued.
        let end_of = |request: &Request| request.end().unwrap_or_else(|| request.cancelled());
        let ends: Vec<_> = ids.iter().map(|&id| (id, end_of(&self.model.requests[id]))).collect();
        self.finish(&ends)
    }

    fn create_queue(&mut self, engine: usize, capacity: u32) -> Check {
        let queue = library::create_queue(self.engines[engine], capacity).map_err(fail)?;
        self.model.add_queue(engine, capacity as usize);
        self.queues.push(queue);
        Ok(())
    }

    fn destroy_queue(&mut self, number: usize) -> Check {
        let Some((queue, pointer)) = self.queue(number) else { return Ok(()) };
        let status = library::destroy_queue(pointer);
        if self.model.queues[queue].under_way > 0 {
            self.model.queues[queue].is_alive = status != 0;
            prop_assert_eq!(status, libc::EBUSY);
            return Ok(());
        }
        prop_assert_eq!(status, 0);
        self.fds.remove(&queue);
        let history = device::take_history();
        let deregistered: BTreeSet<Region> = history
            .iter()
            .filter_map(|done| match done.call {
                Call::Deregister(region) if done.by_driver => Some(region),
                _ => None,
            })
            .collect();
        let (made, kept) = self.model.drop_queue(queue);
        prop_assert_eq!(deregistered, made);
        kept.iter().for_each(|completion| self.receive(completion));
        Ok(())
    }

    // ---- posting -------------------------------------------------------------------

    fn post(&mut self, number: usize, asks: &[Ask], counts: bool) -> Check {
        let Some((queue, pointer)) = self.queue(number) else { return Ok(()) };
        let engine = self.model.queues[queue].engine;
        self.submit(engine, Owner::Queue(queue), asks, counts, |array, posted| {
            library::post(pointer, array, posted)
        })
    }

    fn post_callback(&mut self, number: usize, asks: &[Ask], counts: bool) -> Check {
        let (engine, pointer) = self.engine(number);
        self.submit(engine, Owner::Callback, asks, counts, |array, posted| {
            library::post_callback(pointer, array, true, posted)
        })
    }

    fn post_single(&mut self, ask: &Ask) -> Check {
        if !self.model.engines[DEFAULT].is_alive {
            return Ok(());
        }
        // What these calls cannot say.
        let mut ask = Ask { urgent: false, ..ask.clone() };
        if let What::Register { iova, flags, .. } = &mut ask.what {
            (*iova, *flags) = (false, 0);
        }
        ask.spoilt = ask.spoilt.filter(|spoilt| {
            !matches!(
                spoilt,
                Spoilt::Opcode(_)
                    | Spoilt::Flag(_)
                    | Spoilt::Reserved(_)
                    | Spoilt::Iova
                    | Spoilt::IovaOffset
            )
        });
        let ctx = self.callback_of(self.model.requests.len()) as usize;
        self.submit(DEFAULT, Owner::ShortCallback, &[ask], true, |array, posted| {
            let status = library::post_single(array, ctx);
            if let Some(posted) = posted {
                *posted = usize::from(status == 0);
            }
            status
        })
    }

    /// `counts`: the library is to say how many it took, also where the model knows.
    fn submit(
        &mut self,
        engine: usize,
        owner: Owner,
        asks: &[Ask],
        counts: bool,
        call: impl FnOnce(Array, Option<&mut usize>) -> c_int,
    ) -> Check {
        let made = self.make_all(engine, owner, asks);
        let valid: Vec<_> = made.iter().map_while(|made| made.request.as_ref().ok()).collect();
        let kinds: Vec<_> = valid.iter().map(|request| request.kind).collect();
        let places = match owner {
            Owner::Queue(queue) => Some(self.model.queues[queue].places()),
            Owner::Callback | Owner::ShortCallback => None,
        };
        let possible = self.model.room(engine, places, &kinds, self.is_open);
        if places.is_none() {
            for id in self.model.requests.len()..self.model.requests.len() + valid.len() {
                library::expect_callback(self.callback_of(id), self.engines[engine]);
            }
        }
        let wrs: Vec<_> = made.iter().map(|made| made.wr).collect();
        let mut posted = usize::MAX;
        let told = counts || possible.start() != possible.end();
        let status = call(Array::of(&wrs), told.then_some(&mut posted));
        let posted = if told { posted } else { *possible.start() };
        prop_assert!(possible.contains(&posted), "{posted} of {possible:?} were taken");
        let expected = match made.get(posted).map(|made| &made.request) {
            None => 0,
            Some(Ok(_)) => libc::EAGAIN,
            Some(Err(error)) => *error,
        };
        prop_assert_eq!(status, expected, "{} of {} were taken", posted, made.len());
        for request in made.into_iter().take(posted).filter_map(|made| made.request.ok()) {
            if let Call::Deregister(region) = request.call {
                self.owned.retain(|owned| owned.region != region);
            }
            self.model.accept(request);
        }
        self.come_to_rest()
    }

    fn make_all(&mut self, engine: usize, owner: Owner, asks: &[Ask]) -> Vec<Made> {
        let mut all: Vec<Made> = Vec::new();
        for ask in asks {
            let made = self.make(engine, owner, ask, &all);
            all.push(made);
        }
        all
    }

    /// What is asked for, or something else if that cannot be had now.
    fn make(&mut self, engine: usize, owner: Owner, ask: &Ask, earlier: &[Made]) -> Made {
        let in_call: Vec<_> =
            earlier.iter().filter_map(|made| made.request.as_ref().ok()).collect();
        let longs = self.model.longs(engine) + in_call.iter().filter(|r| r.is_long()).count();
        let may_be_long = longs < MOST_LONG;
        let given: Vec<_> = in_call.iter().map(|request| request.call).collect();
        let is_given = |region| given.contains(&Call::Deregister(region));
        let id = self.model.requests.len() + in_call.len();
        let mut made = match ask.what {
            What::Register { buffer, access, iova, flags } => self.make_registration(
                engine,
                owner,
                ask,
                (buffer, access, iova, flags),
                may_be_long,
            ),
            What::Deregister { region, again: false } => {
                let can_be = |owned: &&Owned| {
                    !is_given(owned.region) && (may_be_long || !is_long(owned.length))
                };
                let choice: Vec<_> = self.owned.iter().filter(can_be).copied().collect();
                match pick(&choice, region) {
                    Some(owned) => make_deregistration(engine, owner, ask, owned),
                    None => self.make_plain(engine, owner, ask),
                }
            }
            What::Deregister { region, again: true } => {
                // While it is alive; what is there then is another region.
                let live = device::live();
                let of = |request: &Request| match request.call {
                    Call::Deregister(region) if live.contains(&region) => {
                        Some(Owned { region, pd: request.pd, length: request.length })
                    }
                    _ => None,
                };
                let under_way = self.model.unfinished().map(|(_, request)| request);
                let choice: Vec<_> =
                    under_way.chain(in_call.iter().copied()).filter_map(of).collect();
                match pick(&choice, region) {
                    Some(owned) => {
                        let made = make_deregistration(engine, owner, ask, owned);
                        Made { request: Err(libc::EALREADY), ..made }
                    }
                    None => self.make_plain(engine, owner, ask),
                }
            }
        };
        made.wr.wr_id = match (owner, &made.request) {
            (Owner::Queue(_), Ok(r)) if is_large(r.length) => FIRST_LARGE_ID + id as u64,
            (Owner::Queue(_), _) => ask.id,
            (Owner::Callback | Owner::ShortCallback, _) => self.callback_of(id),
        };
        if let Some(spoilt) = ask.spoilt {
            spoil(&mut made.wr, spoilt);
            made.request = Err(libc::EINVAL);
        }
        if let Ok(request) = &mut made.request {
            request.wr_id = made.wr.wr_id;
            request.command = self.now;
        }
        made
    }

    fn make_plain(&mut self, engine: usize, owner: Owner, ask: &Ask) -> Made {
        self.make_registration(engine, owner, ask, (Buffer::Part(0, 1), 0, false, 0), false)
    }

    fn make_registration(
        &mut self,
        engine: usize,
        owner: Owner,
        ask: &Ask,
        (buffer, access, with_iova, flags): (Buffer, u32, bool, u32),
        may_be_long: bool,
    ) -> Made {
        let pd = self.new_pd();
        let (addr, length, access) = match buffer {
            // The deregistration will be a long call.
            Buffer::Implicit => (0, usize::MAX, access | ON_DEMAND),
            Buffer::Part(offset, length) if may_be_long || !is_long(length as u64) => {
                (self.memory.start() + offset, length, access)
            }
            Buffer::Part(offset, _) => (self.memory.start() + offset, 1, access),
        };
        let iova = if with_iova { addr as u64 % PAGE + 16 * PAGE } else { 0 };
        let mut wr = blank_wr(AMR_OP_REG_MR, ask.urgent);
        wr.flags |= flags | if with_iova { AMR_WR_IOVA } else { 0 };
        wr.op.reg_mr = amr_reg_mr {
            pd: pointer::<ibv_pd>(pd).cast(),
            addr: pointer(addr),
            length,
            iova,
            access,
            reserved: 0,
        };
        let iova = if with_iova { iova } else { addr as u64 };
        let call = Call::Register { pd, addr, length, iova, access };
        let on_demand = access & ON_DEMAND != 0;
        let kind = Kind::new(
            ask.urgent,
            is_large(length as u64) && !on_demand,
            flags & AMR_WR_HUGEPAGE != 0 && !on_demand,
            flags & AMR_WR_NO_PREFAULT == 0,
        );
        let request = Request::new(engine, owner, call, pd, length as u64, kind);
        Made { wr, request: Ok(request) }
    }

    /// What the callback of a request knows it by.
    fn callback_of(&self, id: Id) -> u64 {
        self.first_callback + id as u64
    }

    fn post_badly(&self, how: BadPost) -> Check {
        let wrs = [blank_wr(AMR_OP_REG_MR, false); 2];
        let good = Array::of(&wrs);
        let nothing = Array { start: std::ptr::null(), count: 0 };
        let bad = match how {
            BadPost::NoQueue | BadPost::NoCallback | BadPost::SingleNoCallback => good,
            BadPost::NoArray => Array { start: std::ptr::null(), count: 1 },
            BadPost::Misaligned => Array { start: good.start.wrapping_byte_add(4), count: 1 },
            BadPost::Endless => Array { count: usize::MAX / 128 + 1, ..good },
            BadPost::Nothing => Array { count: 0, ..good },
            BadPost::NothingForNobody => nothing,
        };
        let expected = if bad.count == 0 { 0 } else { libc::EINVAL };
        let check = |call: &dyn Fn(Option<&mut usize>) -> c_int, expected| {
            let mut posted = 7;
            prop_assert_eq!((call(Some(&mut posted)), posted), (expected, 0));
            prop_assert_eq!(call(None), expected);
            Ok(())
        };
        if matches!(how, BadPost::SingleNoCallback) {
            prop_assert_eq!(library::single_without_callback(), [libc::EINVAL; 2]);
        } else if matches!(how, BadPost::NoQueue) {
            check(&|posted| library::post(NO_QUEUE, good, posted), libc::EINVAL)?;
            check(&|posted| library::post(NO_QUEUE, nothing, posted), libc::EINVAL)?;
            prop_assert_eq!(library::cancel(NO_QUEUE, 0), libc::EINVAL);
            prop_assert_eq!(library::destroy_queue(NO_QUEUE), libc::EINVAL);
            prop_assert_eq!(library::destroy_engine(NO_ENGINE), libc::EINVAL);
            prop_assert_eq!(library::queue_fd(NO_QUEUE), -libc::EINVAL);
        } else {
            let tells = !matches!(how, BadPost::NoCallback);
            for (engine, pointer) in self.engines.iter().enumerate() {
                if self.model.engines[engine].is_alive {
                    check(
                        &|posted| library::post_callback(*pointer, bad, tells, posted),
                        expected,
                    )?;
                }
            }
            for queue in self.model.alive_queues().into_iter().filter(|_| tells) {
                check(&|posted| library::post(self.queues[queue], bad, posted), expected)?;
            }
        }
        Ok(())
    }

    // ---- cancelling, reading, waiting ------------------------------------------------

    fn cancel(&mut self, number: usize, id: u64) -> Check {
        let Some((queue, pointer)) = self.queue(number) else { return Ok(()) };
        let is_large = |request: &&Request| {
            request.owner == Owner::Queue(queue) && request.wr_id >= FIRST_LARGE_ID
        };
        let large = self.model.requests.iter().rfind(is_large).filter(|_| id == 3);
        let wr_id = large.map_or(id, |request| request.wr_id);
        let Some(expected) = self.model.cancel(queue, wr_id) else { return Ok(()) };
        match (library::cancel(pointer, wr_id), expected) {
            (0, Cancel::Cancelled(id) | Cancel::Maybe(id)) => {
                self.model.withdraw(id);
                let end = self.model.requests[id].cancelled();
                self.finish(&[(id, end)])?;
                self.come_to_rest()
            }
            (libc::EALREADY, Cancel::Maybe(id)) => {
                self.model.begin(id);
                Ok(())
            }
            (libc::EALREADY, Cancel::Running) | (libc::ENOENT, Cancel::NotFound) => Ok(()),
            (status, expected) => Err(fail(format!("{status}, but {expected:?}"))),
        }
    }

    fn read(&mut self, number: usize, limit: i32, timeout_ms: Option<i32>) -> Check {
        let Some((queue, pointer)) = self.queue(number) else { return Ok(()) };
        let expected = self.model.queues[queue].unread().count().min(limit as usize);
        let wcs = library::read(pointer, limit, timeout_ms).map_err(fail)?;
        prop_assert_eq!(wcs.len(), expected, "completions were read");
        for completion in self.model.read(queue, &wcs)? {
            self.receive(&completion);
        }
        Ok(())
    }

    fn read_badly(&self, number: usize, how: BadRead) -> Check {
        let Some((_, pointer)) = self.queue(number) else { return Ok(()) };
        let statuses = match how {
            BadRead::NoQueue => [None, Some(0)].map(|t| library::read(NO_QUEUE, 1, t).err()),
            BadRead::NoRoom => [(0, None), (-1, Some(0))]
                .map(|(limit, timeout_ms)| library::read(pointer, limit, timeout_ms).err()),
            BadRead::Nowhere => {
                [false, true].map(|waits| Some(-library::read_to_null(pointer, waits)))
            }
            BadRead::Timeout => [-2, i32::MIN].map(|t| library::read(pointer, 1, Some(t)).err()),
        };
        prop_assert_eq!(statuses, [Some(libc::EINVAL); 2]);
        Ok(())
    }

    fn await_call(&mut self, number: usize, how: Await, waits: bool) -> Check {
        let Some((ticket, id)) = self.call(number) else { return Ok(()) };
        let request = &self.model.requests[id];
        let next = device::next_failure().map_or(Ok(None), Err);
        let outcome = request.attempts.last().filter(|_| device::is_done(ticket)).unwrap_or(&next);
        let is_final = outcome.is_ok_and(|_| true)
            || outcome.is_err_and(|failure| !is_transient(failure.status()));
        let (engine, pd) = (request.engine, request.pd);
        let pointer = self.engines[engine];
        let let_go = move || device::let_go(ticket);
        match (how, request.owner) {
            _ if !is_final => return Ok(()),
            (Await::Completion, Owner::Queue(queue))
                if self.model.queues[queue].unread().next().is_none() =>
            {
                let read = || library::read(self.queues[queue], 4, Some(patience_ms()));
                let wcs = later(waits, let_go, read).map_err(fail)?;
                prop_assert_eq!(wcs.len(), 1, "what was waited for");
                self.has_returned(ticket, id)?;
                for completion in self.model.read(queue, &wcs)? {
                    self.receive(&completion);
                }
            }
            (Await::Drain, _) => {
                prop_assert_eq!(
                    later(waits, let_go, || library::drain(pointer, pd, patience_ms())),
                    0
                );
                self.has_returned(ticket, id)?;
            }
            (Await::DrainAll, _) if self.model.unfinished_of(engine).len() == 1 => {
                prop_assert_eq!(
                    later(waits, let_go, || library::drain(pointer, 0, patience_ms())),
                    0
                );
                self.has_returned(ticket, id)?;
            }
            _ => return Ok(()),
        }
        self.come_to_rest()
    }

    fn drain(&mut self, number: usize, pd: Pd, timeout_ms: i32) -> Check {
        let (engine, pointer) = self.engine(number);
        let pd = match pd {
            Pd::Every => 0,
            Pd::Unknown => self.new_pd(),
            Pd::Of(number) => device::pd(number % (self.pds + 1)),
        };
        let is_meant = |&id: &Id| pd == 0 || self.model.requests[id].pd == pd;
        let is_over = !self.model.unfinished_of(engine).iter().any(is_meant);
        let expected = match (timeout_ms, is_over) {
            // It would never come back.
            (-1, false) => return Ok(()),
            (..-1, _) => libc::EINVAL,
            (_, true) => 0,
            (_, false) => libc::ETIMEDOUT,
        };
        prop_assert_eq!(library::drain(pointer, pd, timeout_ms), expected);
        Ok(())
    }

    fn watch(&mut self, number: usize) -> Check {
        let Some((queue, pointer)) = self.queue(number) else { return Ok(()) };
        let fd = library::queue_fd(pointer);
        prop_assert!(fd >= 0);
        prop_assert_eq!(*self.fds.entry(queue).or_insert(fd), fd);
        Ok(())
    }

    fn check_stats(&self, engine: usize, pointer: EnginePtr) -> Check {
        prop_assert_eq!(library::stats_in(pointer, 0), libc::EINVAL);
        prop_assert_eq!(library::stats_in(pointer, 4104), libc::E2BIG);
        let stats = library::stats(pointer).map_err(fail)?;
        self.model.check_stats(engine, &stats)
    }

    // ---- what workers have done --------------------------------------------------------

    /// Waits until each worker has nothing to do or is inside the device.
    fn come_to_rest(&mut self) -> Check {
        let engines = self.model.alive_engines();
        self.model.pass(&engines);
        if self.is_open {
            self.run_dry(&engines)?
        } else {
            self.fill_workers(&engines)?
        }
        // What became the first in its queue.
        self.model.pass(&engines);
        Ok(())
    }

    /// The gate is open: all requests come to their end.
    fn run_dry(&mut self, engines: &[usize]) -> Check {
        let is_busy = |&&engine: &&usize| !self.model.unfinished_of(engine).is_empty();
        for &engine in engines.iter().filter(is_busy) {
            let status = library::drain(self.engines[engine], 0, patience_ms());
            prop_assert_eq!(status, 0, "requests do not come to their end");
        }
        self.note_attempts()?;
        let mut ends = Vec::new();
        for (id, request) in self.model.unfinished() {
            let end = request.end();
            prop_assert!(end.is_some(), "drained, but not done: request {id}, {request:x?}");
            ends.extend(end.map(|end| (id, end)));
        }
        self.finish(&ends)
    }

    /// The gate is closed: as many calls are inside as there can be.
    fn fill_workers(&mut self, engines: &[usize]) -> Check {
        let expected: Vec<_> = engines.iter().map(|&e| self.model.calls_at_rest(e)).collect();
        // `None`: there is one that nobody has asked for.
        let calls = |state: &device::State| -> Option<Vec<usize>> {
            let maker = |inside: &device::Inside| self.model.maker(&inside.call);
            let makers: Option<Vec<_>> = state.inside().iter().map(maker).collect();
            let of: Vec<_> = makers?.iter().map(|&id| self.model.requests[id].engine).collect();
            Some(engines.iter().map(|e| of.iter().filter(|other| *other == e).count()).collect())
        };
        let is_at_rest = |state: &device::State| calls(state).is_none_or(|calls| calls == expected);
        let comes_to_rest = device::wait_until(is_at_rest);
        let inside = device::with(|state| state.inside().to_vec());
        prop_assert!(
            comes_to_rest,
            "{expected:?} calls of {engines:?} should be inside, but: {inside:x?}"
        );
        let mut new: BTreeMap<usize, Vec<Id>> = BTreeMap::new();
        for inside in inside {
            let Some(id) = self.model.maker(&inside.call) else {
                return Err(fail(format!("nobody has asked for {:x?}", inside.call)));
            };
            let request = &self.model.requests[id];
            if request.state != State::Inside {
                new.entry(request.engine).or_default().push(id);
            }
        }
        new.into_iter().try_for_each(|(engine, ids)| self.model.start(engine, &ids, self.now))
    }

    /// A call was let go: its request is over, or there will be another attempt.
    fn has_returned(&mut self, ticket: u64, id: Id) -> Check {
        prop_assert!(device::wait_until(|state| !state.is_inside(ticket)));
        self.note_attempts()?;
        let request = &self.model.requests[id];
        let Some(end) = request.end() else {
            self.model.put_off(id);
            return Ok(());
        };
        let status = library::drain(self.engines[request.engine], request.pd, patience_ms());
        prop_assert_eq!(status, 0, "request {} does not come to its end", id);
        self.finish(&[(id, end)])
    }

    /// What the device has done.
    fn note_attempts(&mut self) -> Check {
        for done in device::take_history() {
            let Some(id) = self.model.maker(&done.call) else {
                return Err(fail(format!("nobody has asked for {:x?}", done.call)));
            };
            self.model.attempt(id, done.outcome)?;
        }
        Ok(())
    }

    fn finish(&mut self, ends: &[(Id, (i32, Option<Region>))]) -> Check {
        let completions = self.model.finish(ends);
        for (&(id, _), completion) in ends.iter().zip(&completions) {
            let owner = self.model.requests[id].owner;
            if !matches!(owner, Owner::Queue(_)) {
                let told = library::take_told(self.callback_of(id));
                check_told(&told, completion, owner)?;
                self.receive(completion);
            }
        }
        Ok(())
    }

    /// The application hears of a completion.
    fn receive(&mut self, completion: &Completion) {
        let Completion { region, pd, length, .. } = *completion;
        self.owned.extend(region.map(|region| Owned { region, pd, length }));
    }

    /// What is so after each command.
    fn check_rest(&self) -> Check {
        prop_assert_eq!(device::take_complaints(), Vec::<String>::new());
        let owned = self.owned.iter().map(|owned| owned.region);
        let known: BTreeSet<_> = self.model.held().into_iter().chain(owned).collect();
        prop_assert_eq!(device::live(), known, "the regions that are alive");
        for (&queue, &fd) in &self.fds {
            let expected = self.model.queues[queue].unread().next().is_some();
            prop_assert_eq!(is_readable(fd), expected, "the descriptor of queue {}", queue);
        }
        Ok(())
    }

    // ---- the end -----------------------------------------------------------------------

    fn end(mut self) -> Check {
        self.is_open = true;
        device::set_open(true);
        self.come_to_rest()?;
        self.check_rest()?;
        for engine in self.model.alive_engines() {
            self.check_stats(engine, self.engines[engine])?;
        }
        for number in 0..self.model.alive_queues().len() {
            self.read(number, 1000, None)?;
            self.read(number, 1, None)?;
        }
        self.check_rest()?;
        while !self.model.alive_queues().is_empty() {
            self.destroy_queue(0)?;
        }
        while let Some(number) = self.model.alive_engines().iter().rposition(|&e| e != DEFAULT) {
            self.destroy_engine(number, false)?;
        }
        self.check_rest()?;
        prop_assert_eq!(
            library::forget_told(),
            Vec::<u64>::new(),
            "callbacks of nobody's requests"
        );
        // A thread that was joined is a moment later gone from /proc.
        let gone = || Resources::now() == self.before;
        prop_assert!(soon(gone), "{:?} instead of {:?}", Resources::now(), self.before);
        self.is_over = true;
        Ok(())
    }

    /// After a failure: whatever still can be brought to its end is.
    fn abandon(&mut self) {
        device::set_open(true);
        for queue in self.model.alive_queues() {
            let engine = self.model.queues[queue].engine;
            let is_alive = self.model.engines[engine].is_alive;
            if is_alive && library::drain(self.engines[engine], 0, patience_ms()) == 0 {
                library::destroy_queue(self.queues[queue]);
            }
        }
        for engine in self.model.alive_engines() {
            let pointer = self.engines[engine];
            if library::drain(pointer, 0, patience_ms()) == 0 {
                library::destroy_engine(pointer);
            }
        }
    }
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            device::lose_patience();
            self.abandon();
        }
    }
}

fn fail(why: impl ToString) -> TestCaseError {
    TestCaseError::fail(why.to_string())
}

fn pointer<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Does one thing and, maybe a little later than it begins, another on the side.
fn later<T>(waits: bool, other: impl FnOnce() + Send, one: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        scope.spawn(move || {
            if waits {
                thread::sleep(Duration::from_micros(500));
            }
            other();
        });
        one()
    })
}

/// Whether something comes true.
fn soon(is_so: impl Fn() -> bool) -> bool {
    let end = std::time::Instant::now() + device::patience();
    while !is_so() {
        if std::time::Instant::now() > end {
            return false;
        }
        thread::yield_now();
    }
    true
}

fn is_readable(fd: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry to read and write.
    let count = unsafe { libc::poll(&raw mut poll, 1, 0) };
    count == 1 && poll.revents == libc::POLLIN
}

fn check_told(told: &[Told], completion: &Completion, owner: Owner) -> Check {
    prop_assert_eq!(told.len(), 1, "calls of a callback: {:x?}", told);
    let told = told[0];
    prop_assert_eq!(told.status, completion.status);
    prop_assert_eq!(told.mr, completion.region.map_or(0, |region| region.address));
    let opcode = (owner == Owner::Callback).then_some(completion.opcode);
    prop_assert_eq!(told.opcode, opcode);
    prop_assert!(told.thread != thread::current().id(), "called by the submitting thread");
    prop_assert_eq!(told.waits, Some(libc::EDEADLK), "amr_drain() in a callback");
    Ok(())
}

fn create_bad_engine(how: BadEngine) -> Check {
    let mut attr = LongAttr::new(1, 1, 0);
    match how {
        BadEngine::Workers => attr.attr.workers = 65,
        BadEngine::Depth => attr.attr.queue_depth = (1 << 20) + 1,
        BadEngine::Flags => attr.attr.flags = 4,
        BadEngine::Reserved => attr.attr.reserved = 1,
        BadEngine::Cpus => attr.attr.cpus = c"0-".as_ptr(),
        BadEngine::NoSize => attr.attr.size = 0,
        BadEngine::OddSize => attr.attr.size -= 1,
        BadEngine::HugeSize => attr.attr.size = 4104,
        BadEngine::Tail => {
            attr.attr.size += size_of_val(&attr.tail);
            attr.tail[1] = 1;
        }
    }
    let is_too_big = matches!(how, BadEngine::HugeSize | BadEngine::Tail);
    let expected = if is_too_big { libc::E2BIG } else { libc::EINVAL };
    prop_assert_eq!(library::create_engine(&attr), Err(expected));
    Ok(())
}

fn blank_wr(opcode: u32, urgent: bool) -> amr_wr {
    let flags = if urgent { AMR_WR_URGENT } else { 0 };
    amr_wr { wr_id: 0, opcode, flags, op: amr_op { reserved: [0; 14] } }
}

fn make_deregistration(engine: usize, owner: Owner, ask: &Ask, owned: Owned) -> Made {
    let Owned { region, pd, length } = owned;
    let mut wr = blank_wr(AMR_OP_DEREG_MR, ask.urgent);
    wr.op.dereg_mr = amr_dereg_mr { mr: region.pointer().cast() };
    let kind = Kind::new(ask.urgent, is_large(length), false, false);
    let call = Call::Deregister(region);
    let request = Request::new(engine, owner, call, pd, length, kind);
    Made { wr, request: Ok(request) }
}

/// Makes a request one that is refused.
fn spoil(wr: &mut amr_wr, spoilt: Spoilt) {
    // SAFETY: all of the union is numbers and pointers: any bytes are a value.
    let words = unsafe { &mut wr.op.reserved };
    let is_registration = wr.opcode == AMR_OP_REG_MR;
    let offset = words[1] % PAGE;
    match spoilt {
        Spoilt::Opcode(opcode) => wr.opcode = opcode,
        // A flag of registrations, or none at all.
        Spoilt::Flag(flag) if !is_registration || flag >= 16 => wr.flags |= flag,
        Spoilt::Flag(_) => wr.flags |= 1 << 4,
        Spoilt::Reserved(word) if is_registration && word < 5 => words[4] |= 1 << 32,
        Spoilt::Reserved(0) => words[1] = 1,
        Spoilt::Reserved(word) => words[word] = 1 << 63,
        Spoilt::NoObject => words[0] = 0,
        _ if !is_registration => words[0] += 4,
        Spoilt::NoLength | Spoilt::Misaligned => words[2] = 0,
        Spoilt::NoAddress => {
            words[1] = 0;
            words[4] &= !u64::from(ON_DEMAND);
        }
        Spoilt::Overflow => {
            words[1] = words[1].max(1);
            words[2] = u64::MAX - words[1] + 1;
        }
        Spoilt::Access(access) => words[4] = access.into(),
        Spoilt::Iova => {
            wr.flags &= !AMR_WR_IOVA;
            words[3] = PAGE + offset;
        }
        Spoilt::IovaOffset => {
            wr.flags |= AMR_WR_IOVA;
            words[3] = PAGE + offset + 1;
        }
    }
}
