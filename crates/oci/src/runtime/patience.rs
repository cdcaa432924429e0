//! How long a runtime may take.

use std::time::Duration;

use shoal_core::resources::Mib;

/// How long a call of an OCI runtime may take before it counts as hanging and is ended. All are many times
/// what a busy machine needs: a call that is ended in the middle may cost a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// To start a sandbox: a fraction of a second by itself.
    pub start: Duration,
    /// To hold one still, or to let it go on: milliseconds, unless it writes to a slow disk.
    pub hold: Duration,
    /// To save its memory, besides the time for each MiB of it.
    pub save: Duration,
    /// For each MiB of memory that may have to be written, or read.
    pub per_mib: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(120),
            hold: Duration::from_secs(60),
            save: Duration::from_secs(120),
            // A disk of 32 MiB a second, which is a slow one that others use too.
            per_mib: Duration::from_micros(31_250),
        }
    }
}

impl Patience {
    /// For so much memory.
    pub(super) fn of_memory(&self, memory: Mib) -> Duration {
        self.per_mib.saturating_mul(memory.0)
    }
}
