// SPDX-License-Identifier: MIT OR Apache-2.0

//! The whole C interface against a model of it, for one thread that asks: sequences of
//! calls by chance, on a device of the test's own that says when each verbs call
//! ends and how.
//!
//! What is not in the model: several threads that ask (c_tests/random_use.c), exit and
//! `fork()`, the environment, want of memory.

#[path = "../../src/verbs/builtin.rs"]
#[expect(dead_code, reason = "the functions are those of device.rs, which nobody calls here")]
mod verbs;

mod case;
mod command;
mod device;
mod library;
mod memory;
mod model;

use case::Case;
use memory::Memory;
use proptest::prelude::*;

/// Some seconds of it, if `PROPTEST_CASES` does not say otherwise.
fn config() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..Default::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 512 };
    ProptestConfig { cases, max_shrink_iters: 20_000, max_shrink_time: 120_000, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_library_does_what_the_header_says(script in command::script()) {
        Case::run(&script, &Memory::new())?;
    }
}
