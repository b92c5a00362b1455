//! Structures that begin with their size and may grow.
//!
//! The rule of the kernel's extensible structs (copy_struct_from_user()): a
//! smaller one of an older caller is extended by zeros, a larger one of a newer
//! caller is taken if the part that is not known is zero.

use crate::errno::{Errno, Result};
use crate::ffi::engine::amr_engine_attr;
use crate::ffi::info::{amr_limits, amr_stats};

/// A larger `size` is surely not one of a struct: the caller forgot to set it.
const LARGEST: usize = 4096;

/// # Safety
/// `#[repr(C)]`, any bytes are a value, and the first field is `size: usize`.
pub unsafe trait Extensible: Copy {
    /// Reads a struct; all zero for NULL.
    ///
    /// # Safety
    /// `pointer` is NULL or points to as many bytes as its first word says.
    unsafe fn read_or_default(pointer: *const Self) -> Result<Self> {
        // SAFETY: any bytes are a value.
        let mut value: Self = unsafe { std::mem::zeroed() };
        if pointer.is_null() {
            return Ok(value);
        }
        // SAFETY: the caller vouches for the struct.
        let size = unsafe { checked_size(pointer) }?;
        let known = size.min(size_of::<Self>());
        // SAFETY: the caller's struct has `size` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
        if bytes[known..].iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        // SAFETY: `known` bytes are in both; any bytes are a value.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), known);
        }
        Ok(value)
    }

    /// Writes as much of a struct as the caller knows of, but for its size.
    ///
    /// # Safety
    /// `pointer` is NULL or points to as many bytes as its first word says.
    unsafe fn write(self, pointer: *mut Self) -> Result<()> {
        if pointer.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller vouches for the struct.
        let size = unsafe { checked_size(pointer) }?;
        let known = size.min(size_of::<Self>());
        let from = (&raw const self).cast::<u8>();
        // SAFETY: the caller's struct has `size` bytes.
        let to = unsafe { std::slice::from_raw_parts_mut(pointer.cast::<u8>(), size) };
        // SAFETY: a struct of plain numbers has `known` bytes to read.
        let from = unsafe { std::slice::from_raw_parts(from, known) };
        to[size_of::<usize>()..known].copy_from_slice(&from[size_of::<usize>()..]);
        to[known..].fill(0);
        Ok(())
    }
}

/// # Safety
/// `pointer` points to a struct whose first word is its size.
unsafe fn checked_size<T>(pointer: *const T) -> Result<usize> {
    if !pointer.is_aligned() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller vouches for the first word.
    match unsafe { pointer.cast::<usize>().read() } {
        size if size > LARGEST => Err(Errno::E2BIG),
        // Structs have whole words; anything else would cut a field in two.
        size if size == 0 || size % size_of::<usize>() != 0 => Err(Errno::EINVAL),
        size => Ok(size),
    }
}

// SAFETY: repr(C), numbers and a pointer, without padding, size first.
unsafe impl Extensible for amr_engine_attr {}
// SAFETY: repr(C), numbers without padding, size first.
unsafe impl Extensible for amr_limits {}
// SAFETY: repr(C), numbers without padding, size first.
unsafe impl Extensible for amr_stats {}
