//! The one module that speaks to the operating system.

mod cancel;
mod clock;
mod cpus;
mod event;
mod file;
mod fork;
mod lines;
mod load;
mod memory;
mod numa;
mod process;
mod reserve;
mod thread;

pub use cancel::Uncancelled;
pub use clock::{calibrate_stamps, monotonic_ns, stamp_ns};
pub use cpus::{CpuList, cpus_at_load, pin_current_thread, unbind_current_thread};
pub use event::EventFd;
pub use file::{FileKind, file_kind, is_direct_access, is_on_hugetlbfs};
pub use fork::{forks, watch_forks};
pub use lines::{each_line, find_line};
pub use memory::{MOST_PAGES, Populate, absent, advise_huge_pages, first_absent, populate};
pub use numa::{adopt_policy, current_policy, learn_nodes};
pub use process::{
    at_exit, capabilities, environment, errno, is_in_initial_user_namespace, memlock_limits,
    page_size, physical_memory, set_errno, write_stderr,
};
pub use reserve::{BLOCK, Memory};
pub use thread::{Thread, spawn_worker};
