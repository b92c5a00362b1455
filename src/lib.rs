//! Asynchronous RDMA memory registration: `ibv_reg_mr` that does not block.
//!
//! The interface is C: `include/amr/amr.h`, which cbindgen makes of [`ffi`].
//! `ARCHITECTURE.md` says how the rooms of the house hang together.

mod config;
pub mod core;
mod cq;
mod default_engine;
mod diagnose;
mod errno;
mod explain;
mod extensible;
pub mod ffi;
mod host;
mod intake;
mod lifecycle;
mod limits;
mod log;
mod mappings;
mod os;
mod populate;
mod slots;
mod text;
mod verbs;
