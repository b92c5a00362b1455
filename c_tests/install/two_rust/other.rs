// SPDX-License-Identifier: MIT OR Apache-2.0

//! Another Rust library, which brings a standard library of its own: it makes
//! threads, has thread-local variables with destructors, panics and catches.

use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    static SEEN: RefCell<HashMap<u32, String>> = RefCell::default();
}

/// Returns how many of its threads panicked: 3 of 4.
#[unsafe(no_mangle)]
pub extern "C" fn other_count_panics() -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    let threads = [0, 1, 2, 3].map(|number| {
        std::thread::spawn(move || {
            SEEN.with_borrow_mut(|seen| seen.insert(number, number.to_string()));
            assert!(number == 0, "on purpose");
        })
    });
    threads.into_iter().filter_map(|thread| thread.join().err()).count() as i32
}
