//! Giving memory back.
//!
//! The C library keeps what was freed for the next time. Next time may never come, and each of a
//! machine's sandboxes would keep the buffers of its largest transfer; so a while after a large one
//! the daemon returns what it can.

#![expect(unsafe_code, reason = "malloc_trim has no safe form")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// How much a transfer must move to be large, in bytes.
const LARGE: u64 = 4 << 20;

/// How long after a large transfer its buffers are given back: others may follow at once, and the
/// last pieces are still being sent.
const WHILE: Duration = Duration::from_secs(1);

/// Gives memory back after large transfers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    due: AtomicBool,
}

impl Memory {
    /// Notes that a transfer ended that moved so many bytes.
    pub(crate) fn moved(self: &Arc<Self>, bytes: u64) {
        if bytes < LARGE || self.due.swap(true, Ordering::AcqRel) {
            return;
        }
        // There is none when the daemon ends.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let this = Arc::clone(self);
        runtime.spawn(async move {
            tokio::time::sleep(WHILE).await;
            this.due.store(false, Ordering::Release);
            // Not waited for: nobody needs to know.
            drop(tokio::task::spawn_blocking(|| {
                // SAFETY: only looks at the C library's own lists, under its own locks.
                unsafe { libc::malloc_trim(0) }
            }));
        });
    }
}
