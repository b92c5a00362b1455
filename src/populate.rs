//! Faulting memory in before it is registered.
//!
//! The pages that are absent are made present as the registration would have
//! made them; the buffer is never touched. Whatever goes wrong, the device has
//! the last word.

#![forbid(unsafe_code)]

use crate::core::bulk::SLICE;
use crate::core::request::Request;
use crate::diagnose;
use crate::errno::{Errno, Result};
use crate::mappings;
use crate::os::{self, FileKind, Populate};
use crate::verbs::access;
use std::ops::Range;

/// Mappings of one range that are told apart; the rest is left to the device.
const MOST_PARTS: usize = 16;

/// Runs of absent pages in a slice that are faulted in one by one; more are done
/// in one go, with the present pages between them.
const MOST_RUNS: usize = 8;

/// How the parts of a range are to be faulted in.
#[derive(Clone, Copy)]
pub struct Plan {
    parts: [Part; MOST_PARTS],
}

#[derive(Clone, Copy)]
struct Part {
    start: u64,
    end: u64,
    how: Option<Populate>,
}

const NOTHING: Part = Part { start: 0, end: 0, how: None };

/// Asks for huge pages in the inside of the range of a request that is aligned to
/// their size.
pub fn advise_huge_pages(request: &Request) {
    if let Some(inside) = aligned_inside(request.address, request.length) {
        // Refused where no huge page can be, or where huge pages are already.
        let _ = os::advise_huge_pages(&inside);
    }
}

/// The part of a range that whole slices can make up, if there is one. (At the end
/// of the address space there is none: the next multiple would be 0.)
fn aligned_inside(address: u64, length: u64) -> Option<Range<u64>> {
    let start = address.checked_next_multiple_of(SLICE)?;
    let end = address.saturating_add(length) / SLICE * SLICE;
    (start < end).then_some(start..end)
}

/// How far a worker looks ahead at once where nothing is absent: with pages of
/// 4 KiB that takes as long as a slice that is not.
const AHEAD: u64 = 1 << 30;

/// Faults in what is absent of a part of a request's memory; says from where on
/// the rest is worth it.
pub fn populate(request: &Request, part: &Range<u64>, plan: &mut Option<Plan>) -> u64 {
    let page = os::page_size();
    // What is registered are whole pages.
    let Some(end) = part.end.checked_next_multiple_of(page) else { return u64::MAX };
    let range = part.start / page * page..end;
    let step = os::MOST_PAGES as u64 * page;
    let mut starts = (range.start..range.end).step_by(step as usize);
    let populated: Result<usize> = starts.try_fold(0, |count, start| {
        Ok(count + populate_step(request, &(start..range.end.min(start + step)), page, plan)?)
    });
    match populated {
        Ok(0) => end_of_resident(range.end, request.address.saturating_add(request.length), page),
        Ok(_) => part.end,
        Err(_) => u64::MAX,
    }
}

/// Says how many runs of pages were absent.
fn populate_step(
    request: &Request,
    range: &Range<u64>,
    page: u64,
    plan: &mut Option<Plan>,
) -> Result<usize> {
    let mut runs = Runs::default();
    os::absent(range, page)?.for_each(|address| runs.add(address, page));
    for run in runs.iter() {
        if plan.is_none() {
            *plan = Some(Plan::of(request)?);
        }
        for (range, how) in plan.iter().flat_map(|plan| plan.within(run)) {
            os::populate(&range, how)?;
        }
    }
    Ok(runs.count)
}

/// Where the next absent page may be.
fn end_of_resident(start: u64, end: u64, page: u64) -> u64 {
    let ahead = start..end.min(start.saturating_add(AHEAD)) / page * page;
    if ahead.is_empty() {
        return start;
    }
    os::first_absent(&ahead).map_or(start, |absent| absent.unwrap_or(ahead.end))
}

/// Runs of pages in the order of their addresses.
#[derive(Default)]
struct Runs {
    runs: [Range<u64>; MOST_RUNS],
    count: usize,
}

impl Runs {
    fn add(&mut self, address: u64, page: u64) {
        let is_full = self.count == MOST_RUNS;
        match self.runs[..self.count].last_mut() {
            Some(last) if last.end == address || is_full => last.end = address + page,
            _ => {
                self.runs[self.count] = address..address + page;
                self.count += 1;
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.runs[..self.count].iter()
    }
}

impl Plan {
    /// Looks up the mappings of a request's range. Fails if the registration will,
    /// as far as can be seen: then no memory is to be faulted in for it.
    fn of(request: &Request) -> Result<Self> {
        if request.length > os::physical_memory() || diagnose::exceeds_memlock(request) {
            return Err(Errno(libc::ENOMEM));
        }
        let end = request.address.saturating_add(request.length);
        let mut parts = [NOTHING; MOST_PARTS];
        let mut count = 0;
        mappings::visit(|mapping| {
            if mapping.end <= request.address {
                return None;
            }
            if mapping.start >= end {
                return Some(());
            }
            let writable = mapping.allows(true);
            let how = how(mapping.allows(false), writable, mapping.kind(), request.access);
            match parts[..count].last_mut() {
                Some(last) if last.end == mapping.start && last.how == how => {
                    last.end = mapping.end;
                }
                _ if count == MOST_PARTS => return Some(()),
                _ => {
                    parts[count] = Part { start: mapping.start, end: mapping.end, how };
                    count += 1;
                }
            }
            None
        });
        Ok(Self { parts })
    }

    /// The parts of a range that are to be faulted in.
    fn within(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, Populate)> {
        let clip = |part: &Part| part.start.max(range.start)..part.end.min(range.end);
        let parts = self.parts.iter().filter_map(move |part| Some((clip(part), part.how?)));
        parts.filter(|(range, _)| !range.is_empty())
    }
}

/// As the registration would, but never so that a file or a device notices.
fn how(readable: bool, writable: bool, kind: FileKind, access: u32) -> Option<Populate> {
    let writes = access & access::LOCAL_WRITE != 0;
    match kind {
        _ if !readable => None,
        FileKind::Device => None,
        FileKind::File if writable => None,
        _ if writes && writable => Some(Populate::Write),
        _ => Some(Populate::Read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_range_reaches_around_the_end_of_the_address_space() {
        let last = u64::MAX / SLICE * SLICE;
        assert_eq!(aligned_inside(last + 1, 4096), None);
        assert_eq!(aligned_inside(last + 1, u64::MAX - last - 1), None);
        assert_eq!(aligned_inside(last - 1, 4096), None);
        assert_eq!(aligned_inside(1, SLICE), None);
        assert_eq!(aligned_inside(1, 2 * SLICE), Some(SLICE..2 * SLICE));
    }

    #[test]
    fn runs_are_joined_and_few() {
        let mut runs = Runs::default();
        for page in [0, 1, 2, 5, 6, 9] {
            runs.add(page * 4096, 4096);
        }
        let of = |first: u64, last: u64| first * 4096..(last + 1) * 4096;
        assert!(runs.iter().cloned().eq([of(0, 2), of(5, 6), of(9, 9)]));
        for page in (11..80).step_by(2) {
            runs.add(page * 4096, 4096);
        }
        assert_eq!(runs.iter().count(), MOST_RUNS);
        assert_eq!(runs.iter().last(), Some(&of(19, 79)));
    }

    #[test]
    fn files_and_devices_are_never_written_to() {
        use FileKind::{Device, File, Memory};
        let (read, write) = (0, access::LOCAL_WRITE);
        assert_eq!(how(true, true, Memory, write), Some(Populate::Write));
        assert_eq!(how(true, true, Memory, read), Some(Populate::Read));
        assert_eq!(how(true, false, Memory, write), Some(Populate::Read));
        assert_eq!(how(true, false, File, read), Some(Populate::Read));
        assert_eq!(how(true, true, File, write), None);
        assert_eq!(how(true, true, File, read), None);
        assert_eq!(how(true, false, Device, read), None);
        assert_eq!(how(false, false, Memory, write), None);
    }
}
