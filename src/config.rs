//! How engines are configured: attributes, the environment, defaults.

use crate::errno::{Errno, Result};
use crate::ffi::engine::{
    AMR_ENGINE_HUGEPAGE, AMR_ENGINE_NO_PREFAULT, AMR_MAX_QUEUE_DEPTH, AMR_MAX_WORKERS,
    amr_engine_attr,
};
use crate::log::{self, Level};
use crate::os::{self, CpuList};
use once_cell::race::OnceBox;
use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const DEFAULT_QUEUE_DEPTH: u32 = 16_384;
/// More workers than this rarely help one process: the kernel's locks and the
/// memory's bandwidth are shared.
const MOST_DEFAULT_WORKERS: usize = 8;

/// What an engine is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Worker threads.
    pub workers: u32,
    /// Requests that can wait.
    pub queue_depth: u32,
    /// Where the workers run; `None`: where their creator does.
    pub cpus: Option<CpuList>,
    /// The CPUs come from the environment: that none of them can be used is no
    /// fault of the caller.
    pub cpus_are_optional: bool,
    /// Buffers are faulted in before they are registered.
    pub prefault: bool,
    /// Huge pages are asked for.
    pub huge_pages: bool,
}

impl Config {
    /// As the environment says, or by default.
    pub fn from_environment() -> Self {
        let environment = Environment::get();
        Self {
            workers: environment.workers.unwrap_or_else(default_workers),
            queue_depth: environment.queue_depth.unwrap_or(DEFAULT_QUEUE_DEPTH),
            cpus: environment.cpus.clone(),
            cpus_are_optional: true,
            prefault: environment.prefault.unwrap_or(true),
            huge_pages: environment.huge_pages.unwrap_or(false),
        }
    }

    /// As the attributes say; what they leave open comes from the environment.
    ///
    /// # Safety
    /// `attr.cpus` is NULL or a string.
    pub unsafe fn from_attr(attr: &amr_engine_attr) -> Result<Self> {
        let mut config = Self::from_environment();
        if attr.workers != 0 {
            config.workers = in_range(attr.workers, AMR_MAX_WORKERS)?;
        }
        if attr.queue_depth != 0 {
            config.queue_depth = in_range(attr.queue_depth, AMR_MAX_QUEUE_DEPTH)?;
        }
        if !attr.cpus.is_null() {
            // SAFETY: the caller gives a string.
            let cpus = unsafe { CStr::from_ptr(attr.cpus) };
            let cpus = cpus.to_str().ok().and_then(CpuList::parse);
            config.cpus = Some(cpus.ok_or(Errno::EINVAL)?);
            config.cpus_are_optional = false;
        }
        if attr.reserved != 0 || attr.flags & !(AMR_ENGINE_NO_PREFAULT | AMR_ENGINE_HUGEPAGE) != 0 {
            return Err(Errno::EINVAL);
        }
        config.prefault &= attr.flags & AMR_ENGINE_NO_PREFAULT == 0;
        config.huge_pages |= attr.flags & AMR_ENGINE_HUGEPAGE != 0;
        Ok(config)
    }
}

/// Says once that `AMR_CPUS` names no CPU that the process may use.
pub fn complain_of_cpus() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        log::line(format_args!(
            "AMR_CPUS names no CPU that this process may use; workers run where their creator may"
        ));
    }
}

/// The level that `AMR_LOG` asks for.
pub fn log_level() -> Option<Level> {
    Environment::get().log
}

fn in_range(value: u32, most: u32) -> Result<u32> {
    if value <= most { Ok(value) } else { Err(Errno::EINVAL) }
}

fn default_workers() -> u32 {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    cpus.min(MOST_DEFAULT_WORKERS) as u32
}

/// The `AMR_*` variables, read once.
struct Environment {
    workers: Option<u32>,
    queue_depth: Option<u32>,
    cpus: Option<CpuList>,
    prefault: Option<bool>,
    huge_pages: Option<bool>,
    log: Option<Level>,
    complaints: Vec<String>,
    told: AtomicBool,
}

impl Environment {
    /// Two threads may read it at once, but one tells what is wrong with it.
    fn get() -> &'static Self {
        static ENVIRONMENT: OnceBox<Environment> = OnceBox::new();
        let environment = ENVIRONMENT.get_or_init(|| Box::new(Self::read()));
        if !environment.complaints.is_empty() && !environment.told.swap(true, Ordering::Relaxed) {
            for complaint in &environment.complaints {
                log::line(format_args!("{complaint}"));
            }
        }
        environment
    }

    fn read() -> Self {
        let mut complaints = Vec::new();
        Self {
            workers: number("AMR_WORKERS", AMR_MAX_WORKERS, default_workers(), &mut complaints),
            queue_depth: number(
                "AMR_QUEUE_DEPTH",
                AMR_MAX_QUEUE_DEPTH,
                DEFAULT_QUEUE_DEPTH,
                &mut complaints,
            ),
            cpus: variable(
                "AMR_CPUS",
                CpuList::parse,
                format_args!("a list of CPUs like 0-3,8; workers run where their creator may"),
                &mut complaints,
            ),
            prefault: switch("AMR_PREFAULT", "1", &mut complaints),
            huge_pages: switch("AMR_HUGEPAGE", "0", &mut complaints),
            log: variable(
                "AMR_LOG",
                Level::parse,
                format_args!("error, warn, info or debug; nothing is logged"),
                &mut complaints,
            ),
            complaints,
            told: AtomicBool::new(false),
        }
    }
}

fn number(name: &str, most: u32, default: u32, complaints: &mut Vec<String>) -> Option<u32> {
    variable(
        name,
        |text| text.trim().parse().ok().filter(|value| (1..=most).contains(value)),
        format_args!("a number from 1 to {most}; using {default}"),
        complaints,
    )
}

fn switch(name: &str, default: &str, complaints: &mut Vec<String>) -> Option<bool> {
    let parse = |text: &str| match text.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    variable(name, parse, format_args!("0 or 1; using {default}"), complaints)
}

fn variable<T>(
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    wanted: fmt::Arguments<'_>,
    complaints: &mut Vec<String>,
) -> Option<T> {
    let text = os::environment(name).filter(|text| !text.is_empty())?;
    let value = text.to_str().and_then(parse);
    if value.is_none() {
        // Escaped and short: it is to be one line.
        let shown: String = text.to_string_lossy().chars().take(64).collect();
        complaints.push(format!("{name}={shown:?} is not {wanted}"));
    }
    value
}
