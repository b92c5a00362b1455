//! What is done when the library is loaded, because later would be late.

use super::{cpus, fork};

#[used]
// SAFETY: the loader calls the functions of this section once, without arguments
// that this one would look at.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    // The handlers that fork() runs are those that were there when it began
    // (pthread_atfork(3)). This is called again, by somebody who can be told that
    // it failed.
    let _ = fork::watch_forks();
    // The application may bind its threads after this.
    cpus::remember();
}
