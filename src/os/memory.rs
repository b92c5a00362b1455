//! Memory of the process: what is resident, and having it made so.

use crate::errno::{Errno, Result};
use std::io;
use std::ops::Range;

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
