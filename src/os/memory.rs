//! Memory of the process: what is resident, and having it made so.

use crate::errno::{Errno, Result};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Most pages that [`absent`] looks at in one call.
pub const MOST_PAGES: usize = 512;

/// How memory is faulted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populate {
    /// As reads would: a shared or a zero page may do.
    Read,
    /// As writes would, without writing.
    Write,
}

/// Which pages of a range of whole pages, [`MOST_PAGES`] at most, are not in
/// memory. `ENOMEM`: a part is not mapped (mincore(2)).
pub fn absent(range: &Range<u64>, page: u64) -> Result<impl Iterator<Item = u64> + use<>> {
    let mut resident = [0_u8; MOST_PAGES];
    let length = (range.end - range.start) as usize;
    let count = length / page as usize;
    assert!(count <= MOST_PAGES);
    // SAFETY: the kernel writes one byte for each page, `count` of them; the range
    // itself is only looked up.
    let status =
        unsafe { libc::mincore(address(range.start), length, resident.as_mut_ptr().cast()) };
    check(status)?;
    let start = range.start;
    let pages = resident.into_iter().take(count).enumerate();
    Ok(pages.filter(|(_, byte)| byte & 1 == 0).map(move |(i, _)| start + i as u64 * page))
}

/// The first page of a range of whole pages that the process does not have mapped
/// to memory. Quicker than [`absent`] by far, most of all with huge pages, but
/// Linux 6.7 is needed (Documentation/admin-guide/mm/pagemap.rst).
pub fn first_absent(range: &Range<u64>) -> Result<Option<u64>> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut found = PageRegion::default();
    let mut arguments = PagemapScan {
        size: size_of::<PagemapScan>() as u64,
        start: range.start,
        end: range.end,
        regions: (&raw mut found).expose_provenance() as u64,
        most_regions: 1,
        most_pages: 1,
        // Pages that are not in the category.
        category_inverted: PAGE_IS_PRESENT,
        category_mask: PAGE_IS_PRESENT,
        ..Default::default()
    };
    // SAFETY: the arguments are what the kernel expects, and say how large they
    // are; it writes one region to `found`. A kernel that does not know the
    // request writes nothing.
    let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
    match count {
        0 => Ok(None),
        1.. => Ok(Some(found.start)),
        _ => Err(io::Error::last_os_error().into()),
    }
}

const PAGE_IS_PRESENT: u64 = 1 << 3;
/// `_IOWR('f', 16, struct pm_scan_arg)`
const PAGEMAP_SCAN: libc::Ioctl =
    (3 << 30 | (size_of::<PagemapScan>() as u32) << 16 | (b'f' as u32) << 8 | 16) as _;

/// `struct pm_scan_arg` of linux/fs.h
#[repr(C)]
#[derive(Default)]
struct PagemapScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    most_regions: u64,
    most_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h
#[repr(C)]
#[derive(Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// Faults in a range of whole pages without changing what is in it (madvise(2),
/// Linux 5.14).
pub fn populate(range: &Range<u64>, how: Populate) -> Result<()> {
    let advice = match how {
        Populate::Read => libc::MADV_POPULATE_READ,
        Populate::Write => libc::MADV_POPULATE_WRITE,
    };
    advise(range, advice)
}

/// Asks for huge pages in a range.
pub fn advise_huge_pages(range: &Range<u64>) -> Result<()> {
    advise(range, libc::MADV_HUGEPAGE)
}

fn advise(range: &Range<u64>, advice: i32) -> Result<()> {
    let length = (range.end - range.start) as usize;
    // SAFETY: none of the advices in use changes the contents of memory, and a
    // range that is not mapped is an error.
    check(unsafe { libc::madvise(address(range.start), length, advice) })
}

fn address(address: u64) -> *mut libc::c_void {
    std::ptr::without_provenance_mut(address as usize)
}

fn check(status: i32) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Errno::from(io::Error::last_os_error())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;
    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

    fn map(length: usize) -> u64 {
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, PROTECTION, FLAGS, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        start.expose_provenance() as u64
    }

    fn unmap(range: &Range<u64>) {
        let length = (range.end - range.start) as usize;
        // SAFETY: the range is a mapping of a test, and nobody refers to it.
        unsafe { libc::munmap(address(range.start), length) };
    }

    /// Three pages, of which the second is absent.
    #[test]
    fn absent_pages_are_found() {
        let page = crate::os::page_size();
        let start = map(3 * page as usize);
        let pages = [0, 1, 2].map(|i| start + i * page..start + (i + 1) * page);
        let all = start..pages[2].end;
        populate(&pages[0], Populate::Write).unwrap();
        populate(&pages[2], Populate::Read).unwrap();
        assert_eq!(absent(&all, page).unwrap().collect::<Vec<_>>(), [pages[1].start]);
        if let Ok(first) = first_absent(&all) {
            assert_eq!(first, Some(pages[1].start));
        }
        populate(&all, Populate::Write).unwrap();
        assert_eq!(absent(&all, page).unwrap().count(), 0);
        if let Ok(first) = first_absent(&all) {
            assert_eq!(first, None);
        }
        unmap(&pages[1]);
        assert_eq!(absent(&all, page).err(), Some(Errno(libc::ENOMEM)));
        assert_eq!(populate(&all, Populate::Write), Err(Errno(libc::ENOMEM)));
        unmap(&all);
    }
}
