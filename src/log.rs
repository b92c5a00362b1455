//! Lines on standard error, for those who ask with `AMR_LOG`.

#![forbid(unsafe_code)]

use crate::config;
use crate::os;
use crate::text::Text;
use std::fmt::{self, Write};

/// How much is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Faults inside the library.
    Error,
    /// What was lost or could not be done.
    Warn,
    /// Engines made and destroyed, requests that failed.
    Info,
    /// Each request; the only level that shows addresses.
    Debug,
}

impl Level {
    /// From the value of `AMR_LOG`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "error" => Some(Self::Error),
            "warn" => Some(Self::Warn),
            "info" => Some(Self::Info),
            "debug" => Some(Self::Debug),
            _ => None,
        }
    }
}

/// Writes a line if that level was asked for.
#[inline]
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    if config::log_level() >= Some(level) {
        line(message);
    }
}

/// Writes a line whatever was asked for: only for a variable of the library
/// that is set to something wrong.
pub fn line(message: fmt::Arguments<'_>) {
    let mut line = Text::new();
    // What is too long is cut.
    let _ = write!(line, "amr: {message}");
    // One write for each line, so that lines of several threads do not mix.
    os::write_stderr(line.as_line());
}
