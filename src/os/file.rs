//! What is behind a mapping.

use libc::{c_char, c_long};
use std::mem::MaybeUninit;

/// What a path of `/proc/self/maps` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Memory of the kernel's: anonymous, shared, on tmpfs, on hugetlbfs.
    Memory,
    /// A file of any other file system.
    File,
    /// A device.
    Device,
}

/// What the kernel calls memory that was never in a file system: shared anonymous,
/// memfd, System V, huge pages (mm/shmem.c, ipc/shm.c, fs/hugetlbfs/inode.c); and
/// POSIX shared memory, which may be unlinked.
const MEMORY: [&str; 5] = ["/dev/zero", "/memfd:", "/SYSV", "/anon_hugepage", "/dev/shm/"];

/// Descriptors of drivers, registers in sysfs and procfs; and memfd_secret(2), which is
/// no device's but as far from a page that can be pinned.
const DEVICES: [&str; 5] = ["anon_inode:", "/dmabuf:", "/sys/", "/proc/", "/secretmem"];

/// Looks at a path of `/proc/self/maps`.
pub fn file_kind(path: &str) -> FileKind {
    if DEVICES.iter().any(|device| path.starts_with(device)) {
        return FileKind::Device;
    }
    if !path.starts_with('/') || MEMORY.iter().any(|memory| path.starts_with(memory)) {
        return FileKind::Memory;
    }
    match file_type(path) {
        Some(libc::S_IFCHR | libc::S_IFBLK) => FileKind::Device,
        Some(_) if is_on(path, &[libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC, RAMFS_MAGIC]) => {
            FileKind::Memory
        }
        _ => FileKind::File,
    }
}

/// `RAMFS_MAGIC` of linux/magic.h, which the libc crate lacks.
const RAMFS_MAGIC: c_long = 0x8584_58f6;

/// Of linux/stat.h, which the libc crate lacks.
const STATX_ATTR_DAX: u64 = 0x0020_0000;

/// Whether a file is made of huge pages.
pub fn is_on_hugetlbfs(path: &str) -> bool {
    path.starts_with('/') && is_on(path, &[libc::HUGETLBFS_MAGIC])
}

/// Whether a file is mapped without a page cache: it lies on persistent memory (DAX).
pub fn is_direct_access(path: &str) -> bool {
    if !path.starts_with('/') {
        return false;
    }
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let status = with_path(path, |path| {
        // SAFETY: a string and a struct to write to.
        unsafe { libc::statx(libc::AT_FDCWD, path, 0, 0, found.as_mut_ptr()) }
    });
    // SAFETY: all of it is numbers, zero before the call.
    let found = unsafe { found.assume_init() };
    status == Some(0) && found.stx_attributes & STATX_ATTR_DAX != 0
}

fn is_on(path: &str, file_systems: &[c_long]) -> bool {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a string and a struct to write to.
    if with_path(path, |path| unsafe { libc::statfs(path, found.as_mut_ptr()) }) != Some(0) {
        return false;
    }
    // SAFETY: all of it is numbers, zero before the call and filled by it.
    file_systems.contains(&(unsafe { found.assume_init() }.f_type as c_long))
}

/// The `S_IFMT` bits of a file (inode(7)).
fn file_type(path: &str) -> Option<libc::mode_t> {
    let mut found = MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: a string and a struct to write to.
    if with_path(path, |path| unsafe { libc::stat64(path, found.as_mut_ptr()) }) != Some(0) {
        return None;
    }
    // SAFETY: all of it is numbers, zero before the call and filled by it.
    Some(unsafe { found.assume_init() }.st_mode & libc::S_IFMT)
}

/// Gives a path to `call` as C has it, in no memory but the stack's: there may be
/// none. `None`: it is longer than the kernel takes one.
fn with_path<T>(path: &str, call: impl FnOnce(*const c_char) -> T) -> Option<T> {
    let mut buffer = [0; libc::PATH_MAX as usize];
    // The last zero stays.
    let last = buffer.len() - 1;
    buffer[..last].get_mut(..path.len())?.copy_from_slice(path.as_bytes());
    Some(call(buffer.as_ptr().cast()))
}
