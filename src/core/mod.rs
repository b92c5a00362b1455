//! The concurrent core: queues, wake-ups, records, the worker's loop.
//!
//! No raw pointer, no system call, no unsafe code: requests are plain words, so
//! that loom and Miri can run all of it. What a word means is the business of
//! [`crate::host`].

pub mod bulk;
pub mod completions;
pub mod drain;
pub mod engine;
pub mod idle;
pub mod numbers;
pub mod record;
pub mod request;
pub mod retry;
pub mod ring;
pub mod signal;
pub mod stats;
pub mod sync;
pub mod underway;
mod worker;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
