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

const DEFAULT_QUEUE_DEPTH: u32 = 16_384;
/// More workers than this rarely help one process: the kernel's locks and the
/// memory's bandwidth are shared.
const MOST_DEFAULT_WORKERS: usize = 8;
/// Has two things that can be wrong.
const AMR_CPUS: &CStr = c"AMR_CPUS";
/// Bytes of a bad value that are shown.
const MOST_SHOWN: usize = 64;

/// What an engine is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Worker threads.
    pub workers: u32,
    /// Requests that can wait.
    pub queue_depth: u32,
    /// Where the workers run; `None`: where the process could when the library was
    /// loaded.
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
        os::environment(AMR_CPUS, |text| {
            log::line(format_args!(
                "{}: no CPU that this process may use; workers run where the process could when it began",
                Shown(AMR_CPUS, text)
            ));
        });
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
    os::cpus_at_load().min(MOST_DEFAULT_WORKERS) as u32
}

/// The `AMR_*` variables, read once.
struct Environment {
    workers: Option<u32>,
    queue_depth: Option<u32>,
    cpus: Option<CpuList>,
    prefault: Option<bool>,
    huge_pages: Option<bool>,
    log: Option<Level>,
    is_bad: bool,
    told: AtomicBool,
}

impl Environment {
    /// Two threads may read it at once, but one tells what is wrong with it.
    fn get() -> &'static Self {
        static ENVIRONMENT: OnceBox<Environment> = OnceBox::new();
        let environment = ENVIRONMENT.get_or_init(|| {
            let mut is_bad = false;
            let environment = Self::read(&mut |_| is_bad = true);
            Box::new(Self { is_bad, ..environment })
        });
        if environment.is_bad && !environment.told.swap(true, Ordering::Relaxed) {
            Self::read(&mut log::line);
        }
        environment
    }

    fn read(complain: Complain<'_>) -> Self {
        Self {
            workers: number(c"AMR_WORKERS", AMR_MAX_WORKERS, default_workers(), complain),
            queue_depth: number(
                c"AMR_QUEUE_DEPTH",
                AMR_MAX_QUEUE_DEPTH,
                DEFAULT_QUEUE_DEPTH,
                complain,
            ),
            cpus: variable(
                AMR_CPUS,
                CpuList::parse,
                format_args!(
                    "a list of CPUs like 0-3,8; workers run where the process could when it began"
                ),
                complain,
            ),
            prefault: switch(c"AMR_PREFAULT", "1", complain),
            huge_pages: switch(c"AMR_HUGEPAGE", "0", complain),
            log: variable(
                c"AMR_LOG",
                Level::parse,
                format_args!("error, warn, info or debug; nothing is logged"),
                complain,
            ),
            is_bad: false,
            told: AtomicBool::new(false),
        }
    }
}

/// Who hears what is wrong.
type Complain<'a> = &'a mut dyn FnMut(fmt::Arguments<'_>);

fn number(name: &CStr, most: u32, default: u32, complain: Complain<'_>) -> Option<u32> {
    variable(
        name,
        |text| text.trim().parse().ok().filter(|value| (1..=most).contains(value)),
        format_args!("a number from 1 to {most}; using {default}"),
        complain,
    )
}

fn switch(name: &CStr, default: &str, complain: Complain<'_>) -> Option<bool> {
    let parse = |text: &str| match text.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    variable(name, parse, format_args!("0 or 1; using {default}"), complain)
}

/// A variable and its value, escaped and short: it is to be one line.
struct Shown<'a>(&'a CStr, &'a CStr);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, text) = self;
        let shown = &text.to_bytes()[..text.count_bytes().min(MOST_SHOWN)];
        write!(f, "{}=\"{}\"", name.to_string_lossy(), shown.escape_ascii())
    }
}

fn variable<T>(
    name: &CStr,
    parse: impl Fn(&str) -> Option<T>,
    wanted: fmt::Arguments<'_>,
    complain: Complain<'_>,
) -> Option<T> {
    os::environment(name, |text| {
        if text.is_empty() {
            return None;
        }
        let value = text.to_str().ok().and_then(parse);
        if value.is_none() {
            complain(format_args!("{} is not {wanted}", Shown(name, text)));
        }
        value
    })
    .flatten()
}
