//! The signals that stop a server.

use shoal_tasks::Tasks;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// The signals that stop the server.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Handles SIGTERM and SIGINT from now on. Before that they end the process at once: call it once the start can be
    /// stopped in order, and before the listener serves.
    ///
    /// # Errors
    /// When the signals cannot be handled.
    pub(crate) fn handle() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for a signal.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for a signal while the tasks and the listener run.
///
/// # Errors
/// When a task or the listener ended first.
pub(crate) async fn until_signal(
    mut signals: StopSignals,
    tasks: &mut Tasks,
    served: &mut JoinHandle<()>,
) -> anyhow::Result<()> {
    tokio::select! {
        () = signals.next() => Ok(()),
        ended = tasks.ended() => Err(ended.into()),
        served = served => Err(match served {
            Ok(()) => anyhow::anyhow!("the listener ended by itself"),
            Err(error) => anyhow::Error::from(error).context("the listener failed"),
        }),
    }
}
