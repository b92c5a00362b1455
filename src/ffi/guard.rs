//! The one way in: no panic gets out, no cancellation comes in, errors become what
//! C expects, NULL is checked.

use crate::errno::{Errno, Result};
use crate::log::{self, Level};
use crate::os;
use libc::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// 0 or a positive errno value.
pub fn status(body: impl FnOnce() -> Result<()>) -> c_int {
    let _uncancelled = os::Uncancelled::new();
    submit(body)
}

/// The same for a body that is short and makes no system call that could be a
/// cancellation point.
pub fn submit(body: impl FnOnce() -> Result<()>) -> c_int {
    match caught(body) {
        Ok(()) => 0,
        Err(Errno(errno)) => errno,
    }
}

/// A count or a negative errno value.
pub fn count(body: impl FnOnce() -> Result<c_int>) -> c_int {
    let _uncancelled = os::Uncancelled::new();
    caught(body).unwrap_or_else(|Errno(errno)| -errno)
}

/// A pointer, or NULL and errno.
pub fn pointer<T>(body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    let _uncancelled = os::Uncancelled::new();
    caught(body).unwrap_or_else(|Errno(errno)| {
        os::set_errno(errno);
        std::ptr::null_mut()
    })
}

fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log::write(Level::Error, format_args!("a call failed by a fault inside the library"));
        Err(Errno::EIO)
    })
}

/// An argument that must not be NULL.
pub fn required<T>(argument: Option<T>) -> Result<T> {
    argument.ok_or(Errno::EINVAL)
}

/// # Safety
/// `pointer` is NULL or points to a `T` that lives and is not written to for `'a`.
pub unsafe fn reference<'a, T>(pointer: *const T) -> Result<&'a T> {
    check_alignment(pointer)?;
    // SAFETY: not NULL and aligned; the caller vouches for the rest.
    required(unsafe { pointer.as_ref() })
}

/// An array to read; it may be NULL if it is empty.
///
/// # Safety
/// `pointer` is NULL or points to `count` elements that live and are not
/// written to for `'a`.
pub unsafe fn slice_to_read<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_alignment(pointer)?;
    if pointer.is_null()
        || count.checked_mul(size_of::<T>()).is_none_or(|n| n > isize::MAX as usize)
    {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not NULL, aligned, of a possible size; the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Room for results, one at least.
pub struct Room<T> {
    pointer: *mut T,
    count: usize,
}

impl<T> Room<T> {
    /// How many fit.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The same room, to be filled anew.
    pub fn again(&mut self) -> Self {
        Self { pointer: self.pointer, count: self.count }
    }

    /// Writes one of them.
    pub fn put(&mut self, index: usize, value: T) {
        assert!(index < self.count);
        // SAFETY: within the room that the maker of this vouched for.
        let place = unsafe { self.pointer.add(index) };
        // SAFETY: the same.
        unsafe { place.write(value) };
    }
}

/// # Safety
/// `pointer` is NULL or points to room for `count` elements, which nobody else
/// uses while the result is in use.
pub unsafe fn room<T>(pointer: *mut T, count: c_int) -> Result<Room<T>> {
    check_alignment(pointer)?;
    match usize::try_from(count) {
        Ok(count @ 1..) if !pointer.is_null() => Ok(Room { pointer, count }),
        _ => Err(Errno::EINVAL),
    }
}

/// Writes a string as snprintf(3) does, and gives its whole length.
///
/// # Safety
/// `buf` is NULL or has room for `size` bytes.
pub unsafe fn write_string(text: &str, buf: *mut c_char, size: usize) -> Result<c_int> {
    if size > 0 {
        if buf.is_null() {
            return Err(Errno::EINVAL);
        }
        let kept = text.len().min(size - 1);
        // SAFETY: at most size - 1 bytes into the caller's room; the source is another object.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), kept) };
        // SAFETY: kept < size.
        let end = unsafe { buf.add(kept) };
        // SAFETY: the same.
        unsafe { end.write(0) };
    }
    c_int::try_from(text.len()).map_err(|_| Errno::EIO)
}

fn check_alignment<T>(pointer: *const T) -> Result<()> {
    if pointer.is_aligned() { Ok(()) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F73: every way in turns a panic into an error.
    #[test]
    fn no_panic_gets_out() {
        assert_eq!(status(|| panic!("as the test wants it")), libc::EIO);
        assert_eq!(submit(|| panic!("as the test wants it")), libc::EIO);
        assert_eq!(count(|| panic!("as the test wants it")), -libc::EIO);
        assert!(pointer::<u8>(|| panic!("as the test wants it")).is_null());
        assert_eq!(os::errno(), libc::EIO);
    }

    /// No entry point does without one of them.
    #[test]
    fn every_entry_is_guarded() {
        let sources = [
            include_str!("cq.rs"),
            include_str!("engine.rs"),
            include_str!("info.rs"),
            include_str!("post.rs"),
            include_str!("single.rs"),
        ];
        for source in sources {
            for entry in source.split("#[unsafe(no_mangle)]").skip(1) {
                assert!(entry.contains("guard::") || entry.contains("amr_status_str"), "{entry}");
            }
        }
    }
}
