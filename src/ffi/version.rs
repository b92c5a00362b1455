//! Version of the header and of the library.

use libc::c_char;

/// Major version of this header.
pub const AMR_VERSION_MAJOR: u32 = 0;
/// Minor version of this header.
pub const AMR_VERSION_MINOR: u32 = 1;
/// Patch level of this header.
pub const AMR_VERSION_PATCH: u32 = 0;

/// Version of the library that is loaded, as "major.minor.patch".
///
/// The string is static. Never fails. Any thread, also in a forked child.
#[unsafe(no_mangle)]
pub extern "C" fn amr_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
