//! Timeouts of a runtime's calls.

use std::time::Duration;

use shoal_core::resources::Mib;

/// How long a call of an OCI runtime may take before it counts as hanging and is killed. All
/// timeouts are many times what a busy machine needs: killing a call midway may cost the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuntimeTimeouts {
    /// Starting a sandbox: normally a fraction of a second.
    pub start: Duration,
    /// Freezing or thawing: milliseconds, unless it writes to a slow disk.
    pub freeze: Duration,
    /// Saving its memory, in addition to the time per MiB.
    pub save: Duration,
    /// Per MiB of memory that may have to be written or read.
    pub per_mib: Duration,
}

impl Default for RuntimeTimeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(120),
            freeze: Duration::from_secs(60),
            save: Duration::from_secs(120),
            // A disk with 32 MiB per second: a slow one that is shared.
            per_mib: Duration::from_micros(31_250),
        }
    }
}

impl RuntimeTimeouts {
    /// The time for this much memory.
    pub(super) fn of_memory(&self, memory: Mib) -> Duration {
        self.per_mib.saturating_mul(memory.0)
    }
}
