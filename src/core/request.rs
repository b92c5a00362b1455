//! Requests and completions as the core carries them: plain words.

#![forbid(unsafe_code)]

use super::ring::Ring;
use std::ops::BitOr;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Register `length` bytes at `address` on `pd`.
    Register = 1,
    /// Deregister the region `address` of `length` bytes on `pd`.
    Deregister = 2,
}

/// How the completion reaches the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Delivery {
    /// A call of the function `owner` with `tag`.
    Callback = 0,
    /// A completion on the queue `owner` with `tag`.
    Queue = 1,
    /// A call of the function `owner` with a completion with `tag`.
    CompletionCallback = 2,
}

/// How a request is to be treated, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints(u8);

impl Hints {
    /// None.
    pub const NONE: Self = Self(0);
    /// Before others of its size.
    pub const URGENT: Self = Self(1);
    /// Takes so long that small ones should not wait for it.
    pub const BULK: Self = Self(2);
    /// Its memory is to be faulted in first.
    pub const POPULATE: Self = Self(4);
    /// Its memory is to be had as huge pages.
    pub const HUGE: Self = Self(8);

    /// Whether all of these are among them.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These without others.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Hints {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// Whom to tell.
    pub delivery: Delivery,
    /// How it is to be treated.
    pub hints: Hints,
    /// How often it was tried already.
    pub attempts: u8,
    /// Where its memory is to be: the host knows what the number means.
    pub policy: u8,
    /// `IBV_ACCESS_*` bits.
    pub access: u32,
    /// The callback or the completion queue.
    pub owner: u64,
    /// The callback's context or the `wr_id`.
    pub tag: u64,
    /// The protection domain.
    pub pd: u64,
    /// The buffer to register, or the region to deregister.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The address that the device will know the buffer by; of a deregistration,
    /// the place of its region among those under way.
    pub iova: u64,
    /// When it was submitted, in nanoseconds.
    pub submitted: u64,
}

/// Words of a request, and of a completion.
pub const WORDS: usize = 8;

/// A request or a completion.
pub type Words = [u64; WORDS];

/// A ring of them.
pub type Queue = Ring<WORDS>;

const OPERATION_MASK: u8 = 0xf;
const DELIVERY_SHIFT: u32 = 4;
const DELIVERY_MASK: u8 = 0xf;
const HINTS_SHIFT: u32 = 8;
const ATTEMPTS_SHIFT: u32 = 16;
const POLICY_SHIFT: u32 = 24;
const ACCESS_SHIFT: u32 = 32;

impl Request {
    /// The hints of an encoded request.
    pub fn hints_of(words: &Words) -> Hints {
        Hints((words[0] >> HINTS_SHIFT) as u8)
    }

    /// As words.
    pub fn encode(&self) -> Words {
        let first = self.operation as u64
            | (self.delivery as u64) << DELIVERY_SHIFT
            | u64::from(self.hints.0) << HINTS_SHIFT
            | u64::from(self.attempts) << ATTEMPTS_SHIFT
            | u64::from(self.policy) << POLICY_SHIFT
            | u64::from(self.access) << ACCESS_SHIFT;
        [first, self.owner, self.tag, self.pd, self.address, self.length, self.iova, self.submitted]
    }

    /// From the words that [`encode`](Self::encode) made.
    pub fn decode(words: &Words) -> Self {
        let [first, owner, tag, pd, address, length, iova, submitted] = *words;
        Self {
            operation: match first as u8 & OPERATION_MASK {
                1 => Operation::Register,
                _ => Operation::Deregister,
            },
            delivery: match (first >> DELIVERY_SHIFT) as u8 & DELIVERY_MASK {
                0 => Delivery::Callback,
                1 => Delivery::Queue,
                _ => Delivery::CompletionCallback,
            },
            hints: Hints((first >> HINTS_SHIFT) as u8),
            attempts: (first >> ATTEMPTS_SHIFT) as u8,
            policy: (first >> POLICY_SHIFT) as u8,
            access: (first >> ACCESS_SHIFT) as u32,
            owner,
            tag,
            pd,
            address,
            length,
            iova,
            submitted,
        }
    }
}

/// What became of a verbs call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// 0 or an errno value.
    pub status: i32,
    /// What was found out about a failure.
    pub diag: u32,
    /// The number that belongs to `diag`.
    pub diag_arg: u64,
    /// The region: new, or still alive after a failed deregistration; else 0.
    pub region: u64,
}

impl Outcome {
    /// A failure of which nothing more is known.
    pub fn failed(status: i32) -> Self {
        Self { status, ..Self::default() }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The `wr_id`.
    pub tag: u64,
    /// What was asked for.
    pub operation: Operation,
    /// What became of it.
    pub outcome: Outcome,
    /// Nanoseconds from submit until a worker took it.
    pub queued_ns: u64,
    /// Nanoseconds that workers were busy with it.
    pub busy_ns: u64,
    /// Of these: until its memory was faulted in.
    pub populate_ns: u64,
}

impl Completion {
    /// As words.
    pub fn encode(&self) -> Words {
        let status = u64::from(self.outcome.status as u32);
        [
            self.tag,
            self.operation as u64 | status << 32,
            u64::from(self.outcome.diag),
            self.outcome.diag_arg,
            self.outcome.region,
            self.queued_ns,
            self.busy_ns,
            self.populate_ns,
        ]
    }

    /// From the words that [`encode`](Self::encode) made.
    pub fn decode(words: &Words) -> Self {
        let [tag, second, diag, diag_arg, region, queued_ns, busy_ns, populate_ns] = *words;
        Self {
            tag,
            operation: match second as u8 {
                1 => Operation::Register,
                _ => Operation::Deregister,
            },
            outcome: Outcome { status: (second >> 32) as i32, diag: diag as u32, diag_arg, region },
            queued_ns,
            busy_ns,
            populate_ns,
        }
    }
}
