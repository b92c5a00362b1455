//! The C entry points, section by section as in the header.
//!
//! Each body goes through one [`guard`]: it stops panics, turns errors into
//! what the C caller expects, and holds the only rules for NULL.

#![expect(non_camel_case_types, reason = "the names of the C header")]
#![expect(
    clippy::missing_safety_doc,
    reason = "cbindgen copies these docs into the header: they are for the C reader"
)]

pub mod cq;
pub mod engine;
pub(crate) mod guard;
pub mod info;
pub mod post;
pub mod single;
pub mod version;
