//! Where the kernel places fresh memory (numa(7)).
//!
//! A page lands where the policy of the thread that faults it in says, unless its
//! range has a policy of its own. Workers fault in the memory of others, so each
//! request carries the number of the policy of the thread that submitted it.

use super::cpus::{CpuList, MAX_CPUS};
use super::lines::find_line;
use crate::core::numbers::Numbers;
use once_cell::race::OnceBox;
use std::cell::Cell;

/// As the kernel has it without a policy.
const DEFAULT_POLICY: u8 = 0;

/// Words of a set of nodes; the kernel is never built for more than 1024 nodes.
const MASK_WORDS: usize = 16;
const MASK_BITS: usize = MASK_WORDS * 64;
const POLICY_WORDS: usize = 1 + MASK_WORDS;
/// Most policies that are told apart; later ones are taken for the default.
const MOST_POLICIES: usize = 255;

const MPOL_DEFAULT: i32 = 0;
const MPOL_PREFERRED: i32 = 1;
const MPOL_LOCAL: i32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    mode: i32,
    nodes: [u64; MASK_WORDS],
}

impl Policy {
    fn encode(&self) -> [u64; POLICY_WORDS] {
        std::array::from_fn(|i| if i == 0 { self.mode as u64 } else { self.nodes[i - 1] })
    }

    fn decode(words: &[u64; POLICY_WORDS]) -> Self {
        Self { mode: words[0] as i32, nodes: std::array::from_fn(|i| words[i + 1]) }
    }
}

thread_local! {
    /// The policy that the calling worker has.
    static CURRENT: Cell<u8> = const { Cell::new(DEFAULT_POLICY) };
}

/// The policy of the calling thread, for [`adopt_policy`].
pub fn current_policy() -> u8 {
    match node_of_cpu() {
        Some(nodes) => number(&thread_policy(nodes)),
        None => DEFAULT_POLICY,
    }
}

/// Finds out which nodes there are, so that no submit has to.
pub fn learn_nodes() {
    let _ = NODE_OF_CPU.get_or_try_init(|| read_nodes().map(Box::new).ok_or(()));
}

/// The calling thread, a worker, places memory by this policy from now on.
pub fn adopt_policy(number: u8) {
    if CURRENT.get() == number {
        return;
    }
    let policy = policy(number);
    // The kernel takes an empty set as a NULL one, and subtracts one of the size.
    // SAFETY: the kernel reads MASK_BITS bits of `nodes`. If it refuses, the
    // policy stays, which costs speed at most.
    unsafe {
        libc::syscall(libc::SYS_set_mempolicy, policy.mode, policy.nodes.as_ptr(), MASK_BITS + 1)
    };
    CURRENT.set(number);
}

/// All policies seen so far; the number of one is its place and one.
#[cfg(not(loom))]
static POLICIES: Numbers<POLICY_WORDS, MOST_POLICIES> = Numbers::new();
#[cfg(loom)]
loom::lazy_static! {
    static ref POLICIES: Numbers<POLICY_WORDS, MOST_POLICIES> = Numbers::new();
}

fn number(policy: &Policy) -> u8 {
    POLICIES.number(&policy.encode()).map_or(DEFAULT_POLICY, |place| place as u8 + 1)
}

fn policy(number: u8) -> Policy {
    let place = usize::from(number).checked_sub(1);
    let known = place.and_then(|place| POLICIES.value(place));
    known.map_or(Policy { mode: MPOL_DEFAULT, nodes: [0; MASK_WORDS] }, |words| {
        Policy::decode(&words)
    })
}

/// What the calling thread has; the node of its CPU if it has none.
fn thread_policy(node_of_cpu: &[u16]) -> Policy {
    let mut policy = Policy { mode: MPOL_DEFAULT, nodes: [0; MASK_WORDS] };
    // SAFETY: the kernel writes an int and MASK_BITS bits.
    let status = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut policy.mode,
            policy.nodes.as_mut_ptr(),
            MASK_BITS,
            std::ptr::null_mut::<libc::c_void>(),
            0,
        )
    };
    let is_local = status != 0
        || matches!(policy.mode, MPOL_DEFAULT | MPOL_LOCAL)
        || policy.mode == MPOL_PREFERRED && policy.nodes == [0; MASK_WORDS];
    if is_local {
        // SAFETY: no argument.
        let cpu = unsafe { libc::sched_getcpu() };
        let node = usize::try_from(cpu).ok().and_then(|cpu| node_of_cpu.get(cpu)).copied();
        let node = usize::from(node.unwrap_or(0));
        policy = Policy { mode: MPOL_PREFERRED, nodes: [0; MASK_WORDS] };
        policy.nodes[node / 64] = 1 << (node % 64);
    }
    policy
}

/// The node of each CPU; empty where there is one node only, so that nothing is to
/// choose. Read once, or when the next engine is made if it could not be read.
static NODE_OF_CPU: OnceBox<Vec<u16>> = OnceBox::new();

fn node_of_cpu() -> Option<&'static [u16]> {
    NODE_OF_CPU.get().map(Vec::as_slice).filter(|nodes| !nodes.is_empty())
}

fn read_nodes() -> Option<Vec<u16>> {
    let online = read_list("/sys/devices/system/node/online")?;
    let mut nodes = Vec::new();
    if online.iter().count() < 2 {
        return Some(nodes);
    }
    nodes.try_reserve_exact(MAX_CPUS).ok()?;
    nodes.resize(MAX_CPUS, 0);
    for node in online.iter().filter(|&node| node < MASK_BITS) {
        // Empty for a node without CPUs.
        let cpus = read_list(&format!("/sys/devices/system/node/node{node}/cpulist"));
        for cpu in cpus.iter().flat_map(CpuList::iter) {
            nodes[cpu] = node as u16;
        }
    }
    Some(nodes)
}

fn read_list(path: &str) -> Option<CpuList> {
    find_line(path, |line| CpuList::parse(line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_numbers() {
        let nth = |node| Policy { mode: MPOL_PREFERRED, nodes: [node; MASK_WORDS] };
        let numbers: Vec<_> = (0..MOST_POLICIES as u64).map(|n| number(&nth(n))).collect();
        assert!(numbers.iter().copied().eq(1..=MOST_POLICIES as u8));
        assert_eq!(number(&nth(7)), 8);
        assert_eq!(policy(8), nth(7));
        assert_eq!(number(&nth(MOST_POLICIES as u64)), DEFAULT_POLICY);
        assert_eq!(policy(DEFAULT_POLICY).mode, MPOL_DEFAULT);
    }
}
