//! The signals by which a user ends a program.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that would end this program, heard instead.
pub(crate) struct Interruptions(Option<[Signal; 3]>);

impl Interruptions {
    /// Hears them from now on: before what they are to end is started, or one that comes at once
    /// would end this program and leave the other.
    pub(crate) fn hear() -> Self {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let [Ok(interrupt), Ok(terminate), Ok(hangup)] = kinds.map(signal) else {
            // Without, the system's own way holds: they end the program.
            return Self(None);
        };
        Self(Some([interrupt, terminate, hangup]))
    }

    /// Waits for the next, and returns whether it was Ctrl-C.
    pub(crate) async fn next(&mut self) -> bool {
        let Some([interrupt, terminate, hangup]) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => true,
            _ = terminate.recv() => false,
            _ = hangup.recv() => false,
        }
    }
}
