//! The mappings of the process: /proc/self/maps (proc_pid_maps(5)).

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// May be read.
    pub is_readable: bool,
    /// May be written to.
    pub is_writable: bool,
    /// What it maps.
    pub backing: Backing,
}

/// What a mapping maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory of the process.
    Anonymous,
    /// Memory that processes can share: of shared anonymous mappings, memfd,
    /// System V, /dev/shm, huge pages.
    SharedMemory,
    /// A file of some file system, or a device.
    File,
}

/// Shows the mappings in the order of their addresses until `each` has seen
/// enough and says `false`. None if /proc cannot be read.
pub fn visit(mut each: impl FnMut(Mapping) -> bool) {
    let Ok(file) = File::open("/proc/self/maps") else { return };
    let mut lines = BufReader::with_capacity(super::BLOCK, file);
    let mut line = Vec::with_capacity(256);
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        if let Some(mapping) = parse(&line) {
            if !each(mapping) {
                return;
            }
        }
    }
}

/// "start-end rwxs offset device inode   name"
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let (start, end) = std::str::from_utf8(fields.next()?).ok()?.split_once('-')?;
    let permissions = fields.next()?;
    let inode = fields.nth(2)?;
    let name = fields.next().unwrap_or_default().trim_ascii();
    Some(Mapping {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        is_readable: permissions.first() == Some(&b'r'),
        is_writable: permissions.get(1) == Some(&b'w'),
        backing: backing(inode.trim_ascii(), name),
    })
}

fn backing(inode: &[u8], name: &[u8]) -> Backing {
    // What the kernel calls memory without a file that has a name of its own
    // (mm/shmem.c, ipc/shm.c, fs/hugetlbfs/inode.c).
    const SHARED: [&[u8]; 5] =
        [b"/dev/zero (deleted)", b"/memfd:", b"/SYSV", b"/dev/shm/", b"/anon_hugepage"];
    if SHARED.iter().any(|start| name.starts_with(start)) {
        Backing::SharedMemory
    } else if inode == b"0" && !name.starts_with(b"/") {
        Backing::Anonymous
    } else {
        Backing::File
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = b"7f0e8a600000-7f0e8a800000 rw-p 00000000 00:00 0 \n";
        let range = 0x7f0e_8a60_0000..0x7f0e_8a80_0000;
        let (is_readable, is_writable) = (true, true);
        let backing = Backing::Anonymous;
        assert_eq!(parse(line), Some(Mapping { range, is_readable, is_writable, backing }));
        assert_eq!(parse(b"nonsense\n"), None);
    }

    #[test]
    fn backings() {
        let of = |line: &str| parse(line.as_bytes()).unwrap().backing;
        assert_eq!(of("1000-2000 rw-p 0 00:00 0    [heap]\n"), Backing::Anonymous);
        assert_eq!(of("1000-2000 rw-p 0 00:00 0    [anon:name]\n"), Backing::Anonymous);
        assert_eq!(of("1000-2000 rw-s 0 00:01 77   /dev/zero (deleted)\n"), Backing::SharedMemory);
        assert_eq!(of("1000-2000 rw-s 0 00:01 77   /memfd:x (deleted)\n"), Backing::SharedMemory);
        assert_eq!(of("1000-2000 rw-s 0 00:19 5    /dev/shm/a b\n"), Backing::SharedMemory);
        assert_eq!(of("1000-2000 rw-p 0 fe:00 12   /usr/lib/x.so\n"), Backing::File);
        assert_eq!(of("1000-2000 rw-s 0 00:05 12   /dev/nvidia0\n"), Backing::File);
    }

    #[test]
    fn own_memory_is_found() {
        let here = 0;
        let address = (&raw const here).expose_provenance() as u64;
        let mut found = None;
        visit(|mapping| {
            let is_it = mapping.range.contains(&address);
            if is_it {
                found = Some(mapping);
            }
            !is_it
        });
        assert!(found.is_some_and(|m| m.is_writable && m.backing == Backing::Anonymous));
    }
}
