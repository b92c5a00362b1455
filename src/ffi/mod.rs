//! The C entry points, section by section as in the header.
//!
//! Each body goes through one [`guard`]: it stops panics, turns errors into
//! what the C caller expects, and holds the only rules for NULL.

pub mod cq;
pub mod engine;
mod guard;
pub mod info;
pub mod post;
pub mod single;
pub mod version;
