//! The one module that speaks to the operating system.

mod cancel;
mod clock;
mod event;
mod fork;
mod mappings;
mod memory;
mod numa;
mod process;
mod thread;

pub use cancel::Uncancelled;
pub use clock::{calibrate_stamps, monotonic_ns, stamp_ns};
pub use event::EventFd;
pub use fork::{forks, watch_forks};
pub use mappings::{Backing, Mapping, visit as visit_mappings};
pub use memory::{MOST_PAGES, Populate, absent, advise_huge_pages, first_absent, populate};
pub use numa::{adopt_policy, current_policy, learn_nodes};
pub use process::{
    at_exit, capabilities, environment, errno, memlock_limits, page_size, set_errno, write_stderr,
};
pub use thread::{CpuList, pin_current_thread, spawn_worker};
