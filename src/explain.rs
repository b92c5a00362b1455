//! Texts for people: statuses and completions.

use crate::ffi::cq::{
    AMR_DIAG_DEVICE_GONE, AMR_DIAG_HOLE, AMR_DIAG_HUGEPAGE, AMR_DIAG_MAX_MAP_COUNT,
    AMR_DIAG_MAX_MR, AMR_DIAG_MAX_MR_SIZE, AMR_DIAG_MEMLOCK, AMR_DIAG_NONE, AMR_DIAG_PERMISSION,
    AMR_DIAG_PROTECTION, AMR_DIAG_RANGE, AMR_DIAG_UNPINNABLE, AMR_DIAG_UNSUPPORTED, amr_wc,
};
use crate::ffi::post::AMR_OP_DEREG_MR;
use crate::text::Text;
use crate::{limits, os};
use std::ffi::CStr;
use std::fmt::{self, Write};

/// What a status means for a memory registration.
pub fn status_text(status: i32) -> &'static CStr {
    match status {
        0 => c"success",
        libc::EPERM => c"not permitted (locked memory, or a handle made before fork)",
        libc::ENOENT => c"no such request",
        libc::EINTR => c"interrupted by a signal",
        libc::EIO => c"failed without a reason from the device",
        libc::E2BIG => c"structure of a newer version with unknown content",
        libc::ENXIO => c"no such device",
        libc::EAGAIN => c"try again (queue full, or device out of resources for the moment)",
        libc::ENOMEM => c"out of memory, of lockable memory or of keys of the device",
        libc::EACCES => c"no permission on the device or for this access",
        libc::EFAULT => c"the range is not mapped as the access needs it",
        libc::EBUSY => c"still in use",
        libc::ENODEV => c"there is no such device, or it is gone",
        libc::EINVAL => c"invalid argument",
        libc::ENFILE | libc::EMFILE => c"no file descriptor left",
        libc::ENOSPC => c"no room left in the device",
        libc::EDEADLK => c"would wait for itself",
        libc::ENOSYS => c"not known to the kernel",
        libc::EOPNOTSUPP => c"not supported by the device or its driver",
        libc::ESHUTDOWN => c"shut down",
        libc::ETIMEDOUT => c"timed out",
        libc::EALREADY => c"under way already",
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
        (AMR_DIAG_MEMLOCK, _) => {
            write!(text, "{} bytes more would exceed the limit on locked memory ", wc.diag_arg)?;
            memlock_remedy(text)
        }
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
            "the {} bytes are mapped, and yet the kernel cannot pin them all. Check how they are mapped; \
             memory of a GPU needs a dma-buf registration.",
            wc.diag_arg
        ),
        (AMR_DIAG_HOLE, _) => write!(
            text,
            "nothing is mapped at {:#x}, which is in the range. Keep the buffer mapped until the \
             completion, and check its length; memory of a GPU needs a dma-buf registration.",
            wc.diag_arg
        ),
        (AMR_DIAG_PROTECTION, _) => write!(
            text,
            "the page at {:#x} is not mapped for reading, or not for writing and the access includes \
             that. Change it with mprotect, or leave out access bits for writing.",
            wc.diag_arg
        ),
        (AMR_DIAG_UNPINNABLE, _) => write!(
            text,
            "at {:#x} there is memory of a device, or of a file that the kernel lets no device write \
             to. Use anonymous memory, tmpfs or hugetlbfs; memory of a GPU needs a dma-buf \
             registration.",
            wc.diag_arg
        ),
        (AMR_DIAG_HUGEPAGE, _) => write!(
            text,
            "the range has a part of a huge page of {} bytes, which the fork support of libibverbs \
             cannot split. Register whole huge pages, or set RDMAV_HUGEPAGES_SAFE=1.",
            wc.diag_arg
        ),
        (AMR_DIAG_PERMISSION, status) => write!(
            text,
            "there is no permission (errno {status}). Check who may open the device in \
             /dev/infiniband, and the capabilities of the process."
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
            // It came without a diagnosis, as a callback gets it.
            write!(text, "the cause may be the limit on locked memory ")?;
            memlock_remedy(text)
        }
        (_, libc::EBUSY) if wc.opcode == AMR_OP_DEREG_MR => write!(
            text,
            "the region is in use, for example by a memory window that is bound to it. It is still \
             alive: end the use and deregister it again."
        ),
        (_, libc::ECANCELED) => write!(text, "it was cancelled while it waited."),
        (_, libc::EAGAIN) => write!(
            text,
            "the device stayed out of resources for all attempts. Deregister regions or try later."
        ),
        (_, status) => {
            write!(text, "{} (errno {status}).", status_text(status).to_string_lossy())
        }
    }
}

fn is_bound_by_memlock() -> bool {
    os::memlock_limits().0 != u64::MAX && !limits::may_lock_without_limit()
}

fn memlock_remedy(text: &mut Text) -> fmt::Result {
    let (soft, hard) = os::memlock_limits();
    write!(
        text,
        "(RLIMIT_MEMLOCK: soft {}, hard {}; pinned now: {} bytes). Raise it with ulimit -l or in \
         limits.conf; in a container with --ulimit memlock=-1 or --cap-add=IPC_LOCK; in a systemd \
         unit with LimitMEMLOCK=infinity.",
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
