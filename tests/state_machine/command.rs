//! What a test does, in which order: made by chance.
//!
//! A command names things by number, modulo how many there are when its turn comes;
//! what makes no sense then is left out. So a sequence stays one when parts of it are
//! taken away, which is how a failure is made small.

use crate::device::Failure;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt;

/// An engine and a queue to begin with, and what comes then.
#[derive(Clone)]
pub struct Script {
    pub workers: u32,
    pub depth: u32,
    pub capacity: u32,
    pub commands: Vec<Command>,
}

/// A line for each command: a failure is to be read.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, depth, capacity, commands } = self;
        write!(f, "workers {workers}, queue_depth {depth}, capacity {capacity}")?;
        commands.iter().enumerate().try_for_each(|(i, command)| write!(f, "\n{i:4}: {command:?}"))
    }
}

#[derive(Clone, Debug)]
pub enum Command {
    CreateEngine {
        workers: u32,
        depth: u32,
        flags: u32,
        newer: bool,
    },
    CreateBadEngine(BadEngine),
    /// `waits`: what runs is let go only once the call is likely to wait for it.
    DestroyEngine {
        engine: usize,
        waits: bool,
    },
    CreateQueue {
        engine: usize,
        capacity: u32,
    },
    CreateBadQueue {
        engine: usize,
        capacity: u32,
    },
    DestroyQueue {
        queue: usize,
    },
    Post {
        queue: usize,
        asks: Vec<Ask>,
        counts: bool,
    },
    PostCallback {
        engine: usize,
        asks: Vec<Ask>,
        counts: bool,
    },
    PostMany {
        queue: usize,
        count: usize,
    },
    PostBadly(BadPost),
    /// By the calls for one request, on the default engine.
    Single(Ask),
    Cancel {
        queue: usize,
        id: u64,
    },
    Read {
        queue: usize,
        limit: i32,
        timeout_ms: Option<i32>,
    },
    ReadBadly {
        queue: usize,
        how: BadRead,
    },
    /// One call is let go while the library waits for what comes of it.
    Await {
        call: usize,
        how: Await,
        waits: bool,
    },
    Drain {
        engine: usize,
        pd: Pd,
        timeout_ms: i32,
    },
    Stats {
        engine: usize,
    },
    Watch {
        queue: usize,
    },
    SetGate {
        open: bool,
    },
    /// The next calls that are done fail.
    Fail {
        failure: Failure,
        times: usize,
    },
    Perform {
        call: usize,
    },
    LetGo {
        call: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum BadEngine {
    Workers,
    Depth,
    Flags,
    Reserved,
    Cpus,
    NoSize,
    OddSize,
    HugeSize,
    Tail,
}

#[derive(Clone, Copy, Debug)]
pub enum BadPost {
    NoQueue,
    NoCallback,
    NoArray,
    Misaligned,
    Endless,
    Nothing,
    NothingForNobody,
    SingleNoCallback,
}

#[derive(Clone, Copy, Debug)]
pub enum BadRead {
    NoQueue,
    NoRoom,
    Nowhere,
    Timeout,
}

#[derive(Clone, Copy, Debug)]
pub enum Await {
    Completion,
    Drain,
    DrainAll,
}

/// Which PD to drain.
#[derive(Clone, Copy, Debug)]
pub enum Pd {
    Every,
    Unknown,
    Of(usize),
}

/// A request that is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub what: What,
    pub urgent: bool,
    pub id: u64,
    pub spoilt: Option<Spoilt>,
}

#[derive(Clone, Debug)]
pub enum What {
    Register {
        buffer: Buffer,
        access: u32,
        iova: bool,
        flags: u32,
    },
    /// `again`: one whose deregistration is under way.
    Deregister {
        region: usize,
        again: bool,
    },
}

/// A buffer to register.
#[derive(Clone, Copy, Debug)]
pub enum Buffer {
    /// Bytes of it from this offset on.
    Part(usize, usize),
    /// The whole address space, on demand.
    Implicit,
}

/// What is wrong with a request; what does not fit its opcode is another wrong thing.
#[derive(Clone, Copy, Debug)]
pub enum Spoilt {
    Opcode(u32),
    Flag(u32),
    Reserved(usize),
    NoObject,
    Misaligned,
    NoLength,
    NoAddress,
    Overflow,
    Access(u32),
    Iova,
    IovaOffset,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn buffer() -> impl Strategy<Value = Buffer> {
    let offset = || select(&[0, 1, 4 * KIB, 64 * KIB + 7][..]);
    prop_oneof![
        12 => (offset(), select(&[1, 100, 4 * KIB, 2 * MIB - 1][..])).prop_map(|(o, l)| Buffer::Part(o, l)),
        4 => (offset(), select(&[2 * MIB, 3 * MIB][..])).prop_map(|(o, l)| Buffer::Part(o, l)),
        1 => (offset(), Just(64 * MIB)).prop_map(|(o, l)| Buffer::Part(o, l)),
        1 => Just(Buffer::Implicit),
    ]
}

fn what() -> impl Strategy<Value = What> {
    // IBV_ACCESS_*: none, LOCAL_WRITE, REMOTE_WRITE, READ, ATOMIC, ON_DEMAND, an optional one.
    let access = select(&[0, 1, 1 | 2, 4, 1 | 8, 1 | 64, 1 << 20][..]);
    // AMR_WR_HUGEPAGE, AMR_WR_NO_PREFAULT
    let flags = select(&[0, 2, 4, 2 | 4][..]);
    prop_oneof![
        5 => (buffer(), access, any::<bool>(), flags).prop_map(|(buffer, access, iova, flags)| {
            What::Register { buffer, access, iova, flags }
        }),
        5 => (0_usize..8, prop::bool::weighted(0.2))
            .prop_map(|(region, again)| What::Deregister { region, again }),
    ]
}

fn spoilt() -> impl Strategy<Value = Spoilt> {
    prop_oneof![
        select(&[0, 3, u32::MAX][..]).prop_map(Spoilt::Opcode),
        select(&[1, 2, 4, 16, 1 << 31][..]).prop_map(Spoilt::Flag),
        (0_usize..14).prop_map(Spoilt::Reserved),
        Just(Spoilt::NoObject),
        Just(Spoilt::Misaligned),
        Just(Spoilt::NoLength),
        Just(Spoilt::NoAddress),
        Just(Spoilt::Overflow),
        select(&[2, 8, 2 | 8, 2 | 4][..]).prop_map(Spoilt::Access),
        Just(Spoilt::Iova),
        Just(Spoilt::IovaOffset),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let spoilt = prop_oneof![9 => Just(None), 1 => spoilt().prop_map(Some)];
    (what(), prop::bool::weighted(0.3), 0_u64..4, spoilt)
        .prop_map(|(what, urgent, id, spoilt)| Ask { what, urgent, id, spoilt })
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    prop::collection::vec(ask(), 1..6)
}

fn workers() -> impl Strategy<Value = u32> {
    1_u32..=4
}

fn depth() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 1_u32..=8, 1 => Just(100_u32)]
}

fn capacity() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 1_u32..=4, 4 => 5_u32..=12, 1 => Just(200_u32)]
}

fn failure() -> impl Strategy<Value = Failure> {
    let errno = || select(&[libc::EFAULT, libc::EOPNOTSUPP, libc::EBUSY, libc::ENOMEM][..]);
    let transient = || select(&[libc::EAGAIN, libc::EINTR][..]);
    prop_oneof![
        3 => errno().prop_map(Failure::Errno),
        3 => transient().prop_map(Failure::Errno),
        1 => errno().prop_map(Failure::OldStyle),
        1 => transient().prop_map(Failure::OldStyle),
        1 => Just(Failure::Silent),
    ]
}

fn bad_engine() -> impl Strategy<Value = BadEngine> {
    use BadEngine::{Cpus, Depth, Flags, HugeSize, NoSize, OddSize, Reserved, Tail, Workers};
    select(&[Workers, Depth, Flags, Reserved, Cpus, NoSize, OddSize, HugeSize, Tail][..])
}

fn bad_post() -> impl Strategy<Value = BadPost> {
    use BadPost::{
        Endless, Misaligned, NoArray, NoCallback, NoQueue, Nothing, NothingForNobody,
        SingleNoCallback,
    };
    select(
        &[
            NoQueue,
            NoCallback,
            NoArray,
            Misaligned,
            Endless,
            Nothing,
            NothingForNobody,
            SingleNoCallback,
        ][..],
    )
}

fn bad_read() -> impl Strategy<Value = BadRead> {
    select(&[BadRead::NoQueue, BadRead::NoRoom, BadRead::Nowhere, BadRead::Timeout][..])
}

fn pd() -> impl Strategy<Value = Pd> {
    prop_oneof![Just(Pd::Every), Just(Pd::Unknown), (0_usize..16).prop_map(Pd::Of)]
}

fn command() -> impl Strategy<Value = Command> {
    let some = || 0_usize..8;
    let small = || prop::bool::weighted(0.8);
    let making = prop_oneof![
        2 => (workers(), depth(), 0_u32..4, any::<bool>()).prop_map(
            |(workers, depth, flags, newer)| Command::CreateEngine { workers, depth, flags, newer }
        ),
        1 => bad_engine().prop_map(Command::CreateBadEngine),
        2 => (some(), any::<bool>())
            .prop_map(|(engine, waits)| Command::DestroyEngine { engine, waits }),
        6 => (some(), capacity())
            .prop_map(|(engine, capacity)| Command::CreateQueue { engine, capacity }),
        1 => (some(), select(&[0, (1 << 20) + 1, u32::MAX][..]))
            .prop_map(|(engine, capacity)| Command::CreateBadQueue { engine, capacity }),
        3 => some().prop_map(|queue| Command::DestroyQueue { queue }),
    ];
    let asking = prop_oneof![
        12 => (some(), asks(), small())
            .prop_map(|(queue, asks, counts)| Command::Post { queue, asks, counts }),
        6 => (some(), asks(), small())
            .prop_map(|(engine, asks, counts)| Command::PostCallback { engine, asks, counts }),
        1 => (some(), 60_usize..140).prop_map(|(queue, count)| Command::PostMany { queue, count }),
        1 => bad_post().prop_map(Command::PostBadly),
        3 => ask().prop_map(Command::Single),
        8 => (some(), 0_u64..4).prop_map(|(queue, id)| Command::Cancel { queue, id }),
    ];
    let reading = prop_oneof![
        12 => (some(), 1..6, select(&[None, Some(0), Some(1)][..])).prop_map(
            |(queue, limit, timeout_ms)| Command::Read { queue, limit, timeout_ms }
        ),
        1 => (some(), bad_read()).prop_map(|(queue, how)| Command::ReadBadly { queue, how }),
        3 => (some(), select(&[Await::Completion, Await::Drain, Await::DrainAll][..]), any::<bool>())
            .prop_map(|(call, how, waits)| Command::Await { call, how, waits }),
        3 => (some(), pd(), select(&[0, 0, 1, -1, -2][..])).prop_map(
            |(engine, pd, timeout_ms)| Command::Drain { engine, pd, timeout_ms }
        ),
        3 => some().prop_map(|engine| Command::Stats { engine }),
        3 => some().prop_map(|queue| Command::Watch { queue }),
    ];
    let steering = prop_oneof![
        2 => prop::bool::weighted(0.3).prop_map(|open| Command::SetGate { open }),
        4 => (failure(), select(&[1, 1, 1, 2, 6][..]))
            .prop_map(|(failure, times)| Command::Fail { failure, times }),
        3 => some().prop_map(|call| Command::Perform { call }),
        14 => some().prop_map(|call| Command::LetGo { call }),
    ];
    prop_oneof![1 => making, 4 => asking, 3 => reading, 4 => steering]
}

pub fn script() -> impl Strategy<Value = Script> {
    (workers(), depth(), capacity(), prop::collection::vec(command(), 0..80)).prop_map(
        |(workers, depth, capacity, commands)| Script { workers, depth, capacity, commands },
    )
}
