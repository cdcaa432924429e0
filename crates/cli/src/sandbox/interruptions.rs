//! The signals that interrupt a program.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handles signals that would end this program.
pub(crate) struct Interruptions(Option<[Signal; 3]>);

impl Interruptions {
    /// Installs the handlers. Call it before starting the remote command: an early signal would end
    /// this program and leave the command running.
    pub(crate) fn hear() -> Self {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let [Ok(interrupt), Ok(terminate), Ok(hangup)] = kinds.map(signal) else {
            // Without a handler the signal ends the program.
            return Self(None);
        };
        Self(Some([interrupt, terminate, hangup]))
    }

    /// Waits for the next signal, and returns whether it was Ctrl-C.
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
