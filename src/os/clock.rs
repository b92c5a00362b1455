//! Clocks: `CLOCK_MONOTONIC`, and a cheaper one to measure how long things took.

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to write to. The clock exists, so it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
pub use tsc::{calibrate_stamps, stamp_ns};

/// A time in nanoseconds, for differences of two of them only.
#[cfg(not(target_arch = "x86_64"))]
pub fn stamp_ns() -> u64 {
    monotonic_ns()
}

#[cfg(not(target_arch = "x86_64"))]
pub fn calibrate_stamps() {}

/// Each request is stamped twice, and `clock_gettime` costs as much as all the
/// rest of its way to a worker. The processor's time-stamp counter costs a third,
/// and is as good where the kernel has found it good enough for its own clock.
#[cfg(target_arch = "x86_64")]
mod tsc {
    use super::monotonic_ns;
    use crate::os::find_line;
    use std::arch::x86_64::_rdtsc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Nanoseconds for each tick, times 2^32. Two threads that find it unknown both
    /// measure it: one that waits for another would wait for ever in a forked child.
    static NS_PER_TICK: AtomicU64 = AtomicU64::new(UNKNOWN);
    const UNKNOWN: u64 = 0;
    /// The counter is of no use.
    const UNTRUSTED: u64 = 1;

    const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

    /// A time in nanoseconds, for differences of two of them only; a wait that
    /// ends at one might not end if the machine is moved to another host.
    pub fn stamp_ns() -> u64 {
        match NS_PER_TICK.load(Ordering::Relaxed) {
            UNKNOWN | UNTRUSTED => monotonic_ns(),
            ratio => ((u128::from(ticks()) * u128::from(ratio)) >> 32) as u64,
        }
    }

    /// Finds out once how fast the counter counts; takes a millisecond. Call
    /// before the first stamp that counts.
    pub fn calibrate_stamps() {
        if NS_PER_TICK.load(Ordering::Relaxed) == UNKNOWN {
            let ratio = is_trusted().then(measure).flatten().unwrap_or(UNTRUSTED);
            let relaxed = Ordering::Relaxed;
            // The first one counts, so that stamps go on as they began.
            let _ = NS_PER_TICK.compare_exchange(UNKNOWN, ratio, relaxed, relaxed);
        }
    }

    fn is_trusted() -> bool {
        find_line(CLOCK_SOURCE, |source| (source.trim() == "tsc").then_some(())).is_some()
    }

    fn measure() -> Option<u64> {
        let (start_ticks, start_ns) = both();
        std::thread::sleep(Duration::from_millis(1));
        let (end_ticks, end_ns) = both();
        let passed = u128::from(end_ns - start_ns) << 32;
        let ratio = passed.checked_div(u128::from(end_ticks.checked_sub(start_ticks)?))?;
        u64::try_from(ratio).ok().filter(|&ratio| ratio > UNTRUSTED)
    }

    /// Both clocks at the same time, or as near to it as several attempts come.
    fn both() -> (u64, u64) {
        let reading = || {
            let before = ticks();
            let time = monotonic_ns();
            (ticks().saturating_sub(before), before, time)
        };
        let best = (0..16).map(|_| reading()).min();
        let (took, before, time) = best.unwrap_or_else(reading);
        (before + took / 2, time)
    }

    fn ticks() -> u64 {
        // SAFETY: every x86-64 processor has the counter, and Linux lets
        // processes read it unless one asks for a signal instead (prctl(2),
        // PR_SET_TSC); the C library's own clock would die of that, too.
        unsafe { _rdtsc() }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn stamps_pass_as_the_clock_does() {
            calibrate_stamps();
            let (stamp, time) = (stamp_ns(), monotonic_ns());
            std::thread::sleep(Duration::from_millis(20));
            let (stamped, passed) = (stamp_ns() - stamp, monotonic_ns() - time);
            // The two are not read at the same instant: a millisecond of room.
            assert!(stamped.abs_diff(passed) < 1_000_000, "{stamped} for {passed}");
        }
    }
}
