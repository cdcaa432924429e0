//! Giving memory back.
//!
//! The C library keeps what was freed for the next time, in a part of its own for every thread that
//! ever allocated: after a burst the server would keep what only the burst needed.

#![expect(unsafe_code, reason = "malloc_trim has no safe form")]

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// How often what is free is given back. It takes about a millisecond, and what is needed again is
/// zeroed by the kernel a page at a time: too dear for every request, nothing at this pace.
const EVERY: Duration = Duration::from_secs(10);

/// Gives back what is free, again and again. Never ends.
pub(crate) async fn give_back() {
    let mut turns = interval(EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let trim = || {
            // SAFETY: only looks at the C library's own lists, under its own locks.
            unsafe { libc::malloc_trim(0) }
        };
        // It takes the lock of one such part after the other, so never in a runtime's thread.
        if tokio::task::spawn_blocking(trim).await.is_err() {
            return;
        }
    }
}
