//! What is mapped in a range, and whether that can be registered.
//!
//! Read from `/proc/self/maps` where memory is to be faulted in, and after a
//! registration has failed. Asks for no memory: there may be none.

#![forbid(unsafe_code)]

use crate::os::{self, FileKind};

/// What stands in the way of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing is mapped at this address.
    Hole(u64),
    /// The page at this address cannot be read, or not be written.
    Protection(u64),
    /// At this address there is memory of a device, or of a file that the kernel
    /// does not let a device write to.
    Unpinnable(u64),
}

/// One line of the list.
pub struct Mapping<'a> {
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    flags: &'a str,
    /// The file's, or in brackets what the kernel calls it; empty for anonymous memory.
    pub path: &'a str,
}

impl<'a> Mapping<'a> {
    /// From `start-end flags offset device inode path` (proc(5)).
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let flags = fields.next()?;
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            flags,
            path: fields.nth(3).unwrap_or("").trim_start(),
        })
    }

    /// Whether reads of it, or writes to it, are allowed.
    pub fn allows(&self, writes: bool) -> bool {
        self.flags.starts_with('r') && (!writes || self.flags[1..].starts_with('w'))
    }

    /// What it maps.
    pub fn kind(&self) -> FileKind {
        os::file_kind(self.path)
    }

    /// The first address of it that is in a range.
    fn first_in(&self, start: u64, end: u64) -> Option<u64> {
        (self.start < end && start < self.end).then(|| self.start.max(start))
    }

    fn is_shared(&self) -> bool {
        self.flags.ends_with('s')
    }

    /// Whether the kernel refuses to pin what it maps.
    fn is_unpinnable(&self, writes: bool) -> bool {
        match self.kind() {
            FileKind::Device => true,
            // Its file system would not hear of what a device writes.
            FileKind::File => writes && self.is_shared(),
            FileKind::Memory => false,
        }
    }

    fn is_huge(&self) -> bool {
        self.path.starts_with("/anon_hugepage") || os::is_on_hugetlbfs(self.path)
    }
}

/// Shows the mappings in the order of their addresses until `each` has found
/// something; `None`: they cannot be read.
pub fn visit<T>(mut each: impl FnMut(&Mapping<'_>) -> Option<T>) -> Option<Option<T>> {
    os::each_line("/proc/self/maps", |line| each(&Mapping::parse(line)?))
}

/// The first thing in a range that stands in the way of its registration.
pub fn obstacle(start: u64, end: u64, writes: bool) -> Option<Obstacle> {
    let page = os::page_size();
    let mut next = start / page * page;
    let found = visit(|mapping| {
        if mapping.end <= next {
            return None;
        }
        let found = if next >= end {
            return Some(None);
        } else if mapping.start > next {
            Obstacle::Hole(next.max(start))
        } else if !mapping.allows(writes) {
            Obstacle::Protection(next.max(start))
        } else if mapping.is_unpinnable(writes) {
            Obstacle::Unpinnable(next.max(start))
        } else {
            next = mapping.end;
            return None;
        };
        Some(Some(found))
    })?;
    // Past the last mapping of all there is nothing.
    found.unwrap_or((next < end).then_some(Obstacle::Hole(next.max(start))))
}

/// The first address in a range of a file on persistent memory.
pub fn direct_access_file(start: u64, end: u64) -> Option<u64> {
    visit(|mapping| {
        let first = mapping.first_in(start, end)?;
        os::is_direct_access(mapping.path).then_some(first)
    })?
}

/// The first address in a range of memory that has no pages of the kernel's: registers
/// and memory of devices, whatever they are mapped by, and pages of the kernel itself.
pub fn without_pages(start: u64, end: u64) -> Option<u64> {
    let is_special =
        |mapping: &Mapping<'_>| mapping.first_in(start, end).is_some() && !mapping.path.is_empty();
    // As below: that takes the kernel much longer, and only what has a name can be it.
    visit(|mapping| is_special(mapping).then_some(()))??;
    let mut first = None;
    os::find_line("/proc/self/smaps", |line| {
        if let Some(mapping) = Mapping::parse(line) {
            first = mapping.first_in(start, end);
        }
        // VM_IO and VM_PFNMAP (proc(5)).
        let flags = line.strip_prefix("VmFlags:")?;
        flags.split(' ').any(|flag| flag == "io" || flag == "pf").then_some(first?)
    })
}

/// The size of the huge pages (of hugetlbfs) of which a range has only a part.
pub fn part_of_huge_page(start: u64, end: u64) -> Option<u64> {
    let at_an_end = |mapping: &Mapping<'_>| {
        let holds = |address| mapping.start <= address && address < mapping.end;
        holds(start) || holds(end.saturating_sub(1))
    };
    let is_there = visit(|mapping| (at_an_end(mapping) && mapping.is_huge()).then_some(()));
    // The other file tells the size of the page, and takes the kernel much longer.
    is_there??;
    let mut inside = false;
    os::find_line("/proc/self/smaps", |line| {
        if let Some(mapping) = Mapping::parse(line) {
            inside = at_an_end(&mapping) && mapping.is_huge();
        }
        let size = line.strip_prefix("KernelPageSize:").filter(|_| inside)?;
        let size = size.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024;
        (start % size != 0 || end % size != 0).then_some(size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = "7f0e8a600000-7f0e8a800000 rw-p 00000000 00:00 0 ";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f0e_8a60_0000, 0x7f0e_8a80_0000));
        assert!(mapping.allows(true) && !mapping.is_shared());
        assert!(Mapping::parse("nonsense").is_none());
    }

    #[test]
    fn kinds() {
        let kind = |line| Mapping::parse(line).unwrap().kind();
        assert_eq!(kind("1000-2000 rw-p 0 00:00 0    [heap]"), FileKind::Memory);
        assert_eq!(kind("1000-2000 rw-s 0 00:01 77   /dev/zero (deleted)"), FileKind::Memory);
        assert_eq!(kind("1000-2000 rw-s 0 00:01 77   /memfd:x (deleted)"), FileKind::Memory);
        assert_eq!(kind("1000-2000 rw-s 0 00:19 5    /dev/shm/a b"), FileKind::Memory);
        assert_eq!(kind("1000-2000 rw-s 0 fe:00 12   /x/gone (deleted)"), FileKind::File);
        assert_eq!(kind("1000-2000 rw-s 0 00:05 12   /dev/null"), FileKind::Device);
    }

    #[test]
    fn own_memory_is_found() {
        let here = 0;
        let address = (&raw const here).expose_provenance() as u64;
        let found = visit(|mapping| {
            let is_it = mapping.start <= address && address < mapping.end;
            is_it.then(|| mapping.allows(true) && mapping.kind() == FileKind::Memory)
        });
        assert_eq!(found, Some(Some(true)));
    }
}
