//! Where the kernel places fresh memory (numa(7)).
//!
//! A page lands where the policy of the thread that faults it in says, unless its
//! range has a policy of its own. Workers fault in the memory of others, so each
//! request carries the number of the policy of the thread that submitted it.

use std::cell::Cell;
use std::fs;
use std::sync::OnceLock;

/// As the kernel has it without a policy.
const DEFAULT_POLICY: u8 = 0;

/// Words of a set of nodes; the kernel is never built for more than 1024 nodes.
const MASK_WORDS: usize = 16;
const MASK_BITS: usize = MASK_WORDS * 64;
/// Most policies that are told apart; later ones are taken for the default.
const MOST_POLICIES: usize = 255;

const MPOL_DEFAULT: i32 = 0;
const MPOL_PREFERRED: i32 = 1;
const MPOL_LOCAL: i32 = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Policy {
    mode: i32,
    nodes: [u64; MASK_WORDS],
}

thread_local! {
    /// The policy that the calling worker has.
    static CURRENT: Cell<u8> = const { Cell::new(DEFAULT_POLICY) };
}

/// The policy of the calling thread, for [`adopt_policy`].
pub fn current_policy() -> u8 {
    match node_of_cpu() {
        Some(nodes) => number(thread_policy(nodes)),
        None => DEFAULT_POLICY,
    }
}

/// Finds out which nodes there are, so that no submit has to.
pub fn learn_nodes() {
    node_of_cpu();
}

/// The calling thread, a worker, places memory by this policy from now on.
pub fn adopt_policy(number: u8) {
    if CURRENT.get() == number {
        return;
    }
    let none = Policy { mode: MPOL_DEFAULT, nodes: [0; MASK_WORDS] };
    let known = usize::from(number).checked_sub(1).and_then(|index| POLICIES.get(index)?.get());
    let policy = known.unwrap_or(&none);
    // The kernel takes an empty set as a NULL one, and subtracts one of the size.
    // SAFETY: the kernel reads MASK_BITS bits of `nodes`. If it refuses, the
    // policy stays, which costs speed at most.
    unsafe {
        libc::syscall(libc::SYS_set_mempolicy, policy.mode, policy.nodes.as_ptr(), MASK_BITS + 1)
    };
    CURRENT.set(number);
}

/// All policies seen so far; the number of one is its place and one.
static POLICIES: [OnceLock<Policy>; MOST_POLICIES] = [const { OnceLock::new() }; MOST_POLICIES];

fn number(policy: Policy) -> u8 {
    let is_known = |known: &OnceLock<Policy>| *known.get_or_init(|| policy) == policy;
    POLICIES.iter().position(is_known).map_or(DEFAULT_POLICY, |index| index as u8 + 1)
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

/// The node of each CPU; `None` where there is one node only, so that nothing is
/// to choose. Read once.
fn node_of_cpu() -> Option<&'static [u16]> {
    static NODE_OF_CPU: OnceLock<Option<Vec<u16>>> = OnceLock::new();
    NODE_OF_CPU.get_or_init(read_nodes).as_deref()
}

fn read_nodes() -> Option<Vec<u16>> {
    let mut nodes = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir("/sys/devices/system/node").ok()?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<u16>().ok());
        let Some(node) = number.filter(|&node| usize::from(node) < MASK_BITS) else { continue };
        let cpus = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        for cpu in super::CpuList::parse(cpus.trim()).iter().flat_map(super::CpuList::iter) {
            nodes.resize(nodes.len().max(cpu + 1), 0);
            nodes[cpu] = node;
        }
        count += 1;
    }
    (count > 1).then_some(nodes)
}
