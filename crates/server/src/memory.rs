//! The memory of the process: few arenas, and freed memory goes back to the system.
//!
//! glibc keeps freed memory in an arena for each thread that ever allocated. Without this a process
//! would keep the memory of a burst forever.

#![expect(unsafe_code, reason = "malloc_trim and mallopt have no safe wrappers")]

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// A trim takes about a millisecond, and the kernel zeroes pages that are needed again: too slow for
/// every request, negligible at this interval.
const EVERY: Duration = Duration::from_secs(10);

/// How many arenas the threads of a command share that mostly waits. By default, glibc makes up to eight for each processor, so
/// that busy threads do not wait for each other.
const ARENAS: libc::c_int = 2;

/// Limits the arenas of this process. Call it before the first thread starts.
pub(crate) fn share_arenas() {
    // SAFETY: only sets a parameter of glibc's own. If it fails, the default stays.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
}

/// Trims periodically. Never ends.
pub(crate) async fn give_back() {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let trim = || {
            // SAFETY: only touches glibc's own lists, under its own locks.
            unsafe { libc::malloc_trim(0) }
        };
        // It locks one arena after another, so it must not run on a runtime thread.
        if tokio::task::spawn_blocking(trim).await.is_err() {
            return;
        }
    }
}
