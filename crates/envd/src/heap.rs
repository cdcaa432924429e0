//! Returns free heap memory to the system.
//!
//! The C library keeps freed memory for reuse. Without trimming, every sandbox on a machine would
//! keep the buffers of its largest transfer, so the daemon trims its heap a moment after a large
//! one.

#![expect(unsafe_code, reason = "malloc_trim has no safe wrapper")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// Size of a large transfer in bytes.
const LARGE_TRANSFER: u64 = 4 << 20;

/// Delay between a large transfer and the trim: another may follow at once, and the last pieces are
/// still being sent.
const TRIM_DELAY: Duration = Duration::from_secs(1);

/// Trims the heap after large transfers.
#[derive(Debug, Default)]
pub(crate) struct HeapTrimmer {
    scheduled: AtomicBool,
}

impl HeapTrimmer {
    /// Records a finished transfer of `bytes`.
    pub(crate) fn record_transfer(self: &Arc<Self>, bytes: u64) {
        if bytes < LARGE_TRANSFER || self.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        // No runtime while the daemon shuts down.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let this = Arc::clone(self);
        runtime.spawn(async move {
            tokio::time::sleep(TRIM_DELAY).await;
            this.scheduled.store(false, Ordering::Release);
            // Detached: its result does not matter.
            drop(tokio::task::spawn_blocking(|| {
                // SAFETY: touches only the C library's own lists, under its own locks.
                unsafe { libc::malloc_trim(0) }
            }));
        });
    }
}
