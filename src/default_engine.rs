//! The process-wide engine.

#![forbid(unsafe_code)]

use crate::config::Config;
use crate::errno::Result;
use crate::host::EngineHandle;
use crate::{lifecycle, os};

/// The default engine of the calling process, made on first use.
pub fn get() -> Result<&'static EngineHandle> {
    lifecycle::process().default_engine.get_or_try_init(|| {
        let _uncancelled = os::Uncancelled::new();
        EngineHandle::start(&Config::from_environment())
    })
}

/// Whether this is the default engine.
pub fn is(engine: &EngineHandle) -> bool {
    lifecycle::process().default_engine.get().is_some_and(|default| std::ptr::eq(default, engine))
}
