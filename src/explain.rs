//! Texts for people: statuses and completions.

use crate::ffi::cq::{
    AMR_DIAG_DEVICE_GONE, AMR_DIAG_HOLE, AMR_DIAG_HUGEPAGE, AMR_DIAG_MAX_MAP_COUNT,
    AMR_DIAG_MAX_MR, AMR_DIAG_MAX_MR_SIZE, AMR_DIAG_MEMLOCK, AMR_DIAG_NONE, AMR_DIAG_PERMISSION,
    AMR_DIAG_PROTECTION, AMR_DIAG_RANGE, AMR_DIAG_UNPINNABLE, AMR_DIAG_UNSUPPORTED, amr_wc,
};
use crate::ffi::post::AMR_OP_DEREG_MR;
use crate::mappings::{self, Mapping};
use crate::os::FileKind;
use crate::text::Text;
use crate::{limits, os};
use std::ffi::CStr;
use std::fmt::{self, Write};

/// What a status means for a memory registration.
pub fn status_text(status: i32) -> &'static CStr {
    match status {
        0 => c"success",
        libc::EPERM => {
            c"not permitted (no memory may be locked; or the handle was made before fork() and belongs \
              to the parent: make a new one in the child)"
        }
        libc::ENOENT => c"no such request",
        libc::EINTR => c"interrupted by a signal: try again",
        libc::EIO => c"failed, and the device says no more: its driver may have, in the kernel's log",
        libc::E2BIG => c"structure of a newer version with unknown content",
        libc::ENXIO | libc::ENODEV => {
            c"there is no such device, or it is gone: see which there are (ibv_devices)"
        }
        libc::EAGAIN => {
            c"try again (queue full, no thread to be had, or device out of resources for the moment)"
        },
        libc::ENOMEM => {
            c"out of memory (a queue takes less with a smaller depth), of lockable memory (ulimit -l) or \
              of keys of the device"
        },
        libc::EACCES => c"no permission on the device or for this access",
        libc::EFAULT => c"the range is not mapped as the access needs it",
        libc::EBUSY => c"still in use: end the use and try again",
        libc::EINVAL => c"invalid argument",
        libc::ENFILE | libc::EMFILE => c"no file descriptor left: close some, or raise ulimit -n",
        libc::ENOSPC => c"no room left in the device: deregister regions",
        libc::EDEADLK => c"would wait for itself: call it outside of callbacks",
        libc::ENOSYS => c"not known to the kernel or the driver: update them",
        libc::EOPNOTSUPP => c"not supported by the device or its driver",
        libc::ESHUTDOWN => c"the engine is being destroyed, or the process is exiting",
        libc::ETIMEDOUT => c"timed out",
        libc::EALREADY => c"under way already: wait for its completion",
        libc::ECANCELED => c"cancelled",
        _ => c"unknown error",
    }
}

/// One sentence on a completion, and its remedy.
pub fn completion(wc: &amr_wc) -> Text {
    let mut text = Text::new();
    // There is room for the longest.
    let _ = describe(wc, &mut text);
    text
}

fn describe(wc: &amr_wc, text: &mut Text) -> fmt::Result {
    let what = if wc.opcode == AMR_OP_DEREG_MR { "deregistration" } else { "registration" };
    if wc.status == 0 {
        return write!(text, "The {what} succeeded.");
    }
    write!(text, "The {what} failed: ")?;
    cause(wc, text)
}

/// What is known of it, and what can be done.
fn cause(wc: &amr_wc, text: &mut Text) -> fmt::Result {
    match (wc.diag, wc.status) {
        (AMR_DIAG_MEMLOCK, _) => memlock(wc.diag_arg, text),
        (AMR_DIAG_MAX_MR, _) => write!(
            text,
            "the device or the kernel is out of resources for another region; probably the device has \
             no key left, of which it has {} for all processes together. Deregister regions, or \
             register fewer, larger ones.",
            wc.diag_arg
        ),
        (AMR_DIAG_MAX_MR_SIZE, _) => write!(
            text,
            "one region of this device can have at most {} bytes. Register the buffer in parts.",
            wc.diag_arg
        ),
        (AMR_DIAG_MAX_MAP_COUNT, _) => write!(
            text,
            "the process has {} mappings and may have {}. Raise vm.max_map_count with sysctl, or \
             register fewer, larger buffers.",
            limits::map_count(),
            wc.diag_arg
        ),
        (AMR_DIAG_RANGE, _) => write!(
            text,
            "the {} bytes are mapped, and yet the kernel cannot pin them all. Check how they are mapped, \
             and that a mapped file is as long as its mapping; memory of a GPU needs a dma-buf \
             registration.",
            wc.diag_arg
        ),
        (AMR_DIAG_HOLE, _) => write!(
            text,
            "nothing is mapped at {:#x}, which is in the range. Keep the buffer mapped until the \
             completion, and check its length; memory of a GPU needs a dma-buf registration.",
            wc.diag_arg
        ),
        (AMR_DIAG_PROTECTION, _) => protection(wc.diag_arg, text),
        (AMR_DIAG_UNPINNABLE, _) => unpinnable(wc.diag_arg, text),
        (AMR_DIAG_HUGEPAGE, _) => write!(
            text,
            "the range has a part of a huge page of {} bytes, which the fork support of libibverbs \
             cannot split. Register whole huge pages, or set RDMAV_HUGEPAGES_SAFE=1.",
            wc.diag_arg
        ),
        (AMR_DIAG_PERMISSION, status) => write!(
            text,
            "there is no permission (errno {status}), and that is not for the limit on locked memory. \
             Check what a seccomp filter or a security module forbids, whether the process has \
             changed its user since it opened the device in /dev/infiniband, and its capabilities."
        ),
        (AMR_DIAG_DEVICE_GONE, status) => write!(
            text,
            "the device does not answer any more (errno {status}): it was removed or reset. Close it \
             and open it again."
        ),
        (AMR_DIAG_UNSUPPORTED, _) => write!(
            text,
            "the device or its driver does not support access {:#x} for this memory. Leave out \
             optional access bits and on-demand paging, or update the driver.",
            wc.diag_arg
        ),
        (AMR_DIAG_NONE, libc::ENOMEM | libc::EPERM) if is_bound_by_memlock() => {
            probably_memlock(text)
        }
        (_, libc::EBUSY) if wc.opcode == AMR_OP_DEREG_MR => write!(
            text,
            "the region is in use, for example by a memory window that is bound to it. It is still \
             alive: end the use and deregister it again."
        ),
        (_, libc::EINVAL) if wc.opcode != AMR_OP_DEREG_MR => write!(
            text,
            "the device or its driver does not take such a registration (errno {}). Compare its length, \
             its alignment and its access bits with what ibv_devinfo -v tells.",
            wc.status
        ),
        (_, libc::ECANCELED) => write!(text, "it was cancelled while it waited."),
        (_, libc::EAGAIN) => write!(
            text,
            "the device stayed out of resources for all attempts, or a control group allows no more \
             (rdma.max). Deregister regions or try later."
        ),
        (_, status) => {
            write!(text, "{} (errno {status}).", status_text(status).to_string_lossy())
        }
    }
}

fn protection(address: u64, text: &mut Text) -> fmt::Result {
    let found = with_mapping(address, |mapping| {
        if !mapping.allows(false) {
            Some("is not mapped for reading")
        } else if !mapping.allows(true) {
            Some("is mapped for reading only, and the access includes writing")
        } else {
            None
        }
    });
    let how = found
        .flatten()
        .unwrap_or("was not mapped for reading, or not for writing and the access includes that");
    write!(
        text,
        "the page at {address:#x} {how}. Change it with mprotect, or leave out access bits for writing."
    )
}

fn unpinnable(address: u64, text: &mut Text) -> fmt::Result {
    write!(text, "at {address:#x} there is ")?;
    let found = with_mapping(address, |mapping| {
        let path = mapping.path;
        // A path can be longer than the rest.
        match mapping.kind() {
            FileKind::Device => write!(text, "memory of a device ({path:.100})"),
            FileKind::File => write!(
                text,
                "a file ({path:.100}) whose pages the kernel does not pin, for the sake of its file \
                 system"
            ),
            FileKind::Memory => {
                write!(text, "memory without pages of its own ({path:.100}, VM_PFNMAP or VM_IO)")
            }
        }
    });
    found.unwrap_or_else(|| {
        text.write_str("memory of a device, or of a file that the kernel lets no device write to")
    })?;
    text.write_str(
        ". Use anonymous memory, tmpfs or hugetlbfs; memory of a GPU needs a dma-buf registration.",
    )
}

/// Asks what is mapped there now, which may no longer be what it was.
fn with_mapping<T>(address: u64, mut ask: impl FnMut(&Mapping<'_>) -> T) -> Option<T> {
    mappings::visit(|mapping| {
        (mapping.start <= address && address < mapping.end).then(|| ask(mapping))
    })?
}

fn memlock(wanted: u64, text: &mut Text) -> fmt::Result {
    let (soft, hard) = os::memlock_limits();
    let pinned = limits::status_bytes("VmPin:");
    let remedy = if pinned > 0 && wanted <= soft {
        "With less pinned it would fit: deregister regions, or raise the limit"
    } else {
        "Raise it"
    };
    let how = if pinned.saturating_add(wanted) <= hard {
        "The process can do so itself, up to the hard limit"
    } else {
        "The hard limit has to be raised, too"
    };
    write!(text, "{wanted} bytes more would exceed the soft limit on locked memory ")?;
    memlock_now(text)?;
    write!(text, ". {remedy} {RAISE}. {how}.")
}

/// For a status that came without a diagnosis, as a callback gets it.
fn probably_memlock(text: &mut Text) -> fmt::Result {
    text.write_str("the cause may be the limit on locked memory ")?;
    memlock_now(text)?;
    write!(text, ". Raise it {RAISE}.")
}

fn is_bound_by_memlock() -> bool {
    os::memlock_limits().0 != u64::MAX && !limits::may_lock_without_limit()
}

const RAISE: &str = "with ulimit -l or in limits.conf; in a container with --ulimit memlock=-1 or \
                     --cap-add=IPC_LOCK; in a systemd unit with LimitMEMLOCK=infinity";

fn memlock_now(text: &mut Text) -> fmt::Result {
    let (soft, hard) = os::memlock_limits();
    let capability = if limits::may_lock_without_limit() {
        "CAP_IPC_LOCK is there now"
    } else if limits::has_ipc_lock() {
        "CAP_IPC_LOCK is of no effect in this user namespace"
    } else {
        "no CAP_IPC_LOCK"
    };
    write!(
        text,
        "(RLIMIT_MEMLOCK: soft {}, hard {}; pinned now: {} bytes; {capability})",
        Limit(soft),
        Limit(hard),
        limits::status_bytes("VmPin:")
    )
}

struct Limit(u64);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == u64::MAX { f.write_str("unlimited") } else { write!(f, "{} bytes", self.0) }
    }
}
