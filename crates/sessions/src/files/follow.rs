//! The task that keeps a machine equal.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::inside::home::HomeFiles;
use shoal_core::store::StoreError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::Files;
use super::sync::{Side, Sync, SyncError};

/// The first and the longest delay before a reconnect.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// Requests for a sync of all changes.
type Settle = oneshot::Sender<Result<(), SyncError>>;

/// A machine that is kept equal, until this is dropped.
pub(crate) struct Connection {
    sandbox: SandboxId,
    requests: mpsc::Sender<Settle>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Makes both sides equal, and keeps them so.
    ///
    /// # Errors
    /// When the two sides cannot be made equal. A used machine with too many files is tried again: its commands can remove
    /// some.
    pub(crate) async fn open(
        files: Arc<Files>,
        sandbox: SandboxId,
        home: Arc<dyn HomeFiles>,
        fresh: bool,
    ) -> Result<Self, SyncError> {
        let side = Side {
            files,
            sandbox: sandbox.clone(),
            home,
        };
        let begun = match Sync::begin(side.clone(), fresh).await {
            Err(error @ SyncError::Inside(InsideError::TooMuch(_))) if !fresh => Err(error),
            begun => Ok(begun?),
        };
        let (requests, asked) = mpsc::channel(1);
        Ok(Self {
            sandbox,
            requests,
            task: tokio::spawn(follow(side, begun, asked)),
        })
    }

    /// Whether it connects to this machine.
    pub(crate) fn is_to(&self, sandbox: &SandboxId) -> bool {
        self.sandbox == *sandbox && !self.task.is_finished()
    }

    /// Through which others ask it to settle.
    pub(crate) fn settler(&self) -> Settler {
        Settler(self.requests.clone())
    }
}

/// Asks a connection to settle.
pub(crate) struct Settler(mpsc::Sender<Settle>);

impl Settler {
    /// Returns once everything that had changed on either side before this call is on the other.
    ///
    /// # Errors
    /// When that failed.
    pub(crate) async fn settle(&self) -> Result<(), SyncError> {
        let (answer, answered) = oneshot::channel();
        let asked = self.0.send(answer).await;
        asked.map_err(|_| SyncError::Ended)?;
        answered.await.unwrap_or(Err(SyncError::Ended))
    }
}

/// Keeps a machine in sync until all callers are gone.
async fn follow(side: Side, mut begun: Result<Sync, SyncError>, mut asked: mpsc::Receiver<Settle>) {
    let (session, sandbox) = (&side.files.session, &side.sandbox);
    let mut retry = FIRST_RETRY;
    loop {
        let error = match begun {
            Ok(mut sync) => match keep(&mut sync, &mut asked, &mut retry).await {
                Ok(()) => return,
                Err(error) => error,
            },
            Err(error) => error,
        };
        let error = Chain(&error).to_string();
        tracing::info!(%session, %sandbox, error, "the files of a session are not kept equal; trying again");
        let reason = format!("the machine's files are not synchronized: {error}; trying again");
        side.files.interrupted(Some(reason)).await;
        // A caller does not wait for the time of the next attempt.
        let request = tokio::select! {
            () = tokio::time::sleep(retry) => None,
            request = asked.recv() => match request {
                Some(request) => Some(request),
                None => return,
            },
        };
        retry = (retry * 2).min(LAST_RETRY);
        begun = Sync::begin(side.clone(), false).await;
        if let Some(request) = request {
            // A reconnect makes both sides equal. The caller may have disconnected.
            let answer = begun.as_ref().map(|_| ()).map_err(told);
            let _ = request.send(answer);
        }
    }
}

/// The error for the caller: whether it was the session's side.
fn told(error: &SyncError) -> SyncError {
    let SyncError::Store(error) = error else {
        return SyncError::Ended;
    };
    SyncError::Store(match error {
        StoreError::NoSpace => StoreError::NoSpace,
        StoreError::Unavailable(said) => StoreError::Unavailable(said.clone()),
        error => StoreError::failed(Chain(error)),
    })
}

/// Keeps a machine equal until it fails.
async fn keep(
    sync: &mut Sync,
    asked: &mut mpsc::Receiver<Settle>,
    retry: &mut Duration,
) -> Result<(), SyncError> {
    let files = sync.side.files.clone();
    loop {
        tokio::select! {
            event = sync.next() => sync.event(event?).await?,
            () = files.waiting.notified() => sync.side.push().await?,
            request = asked.recv() => {
                let Some(request) = request else {
                    return Ok(());
                };
                match sync.settle().await {
                    // The caller may have disconnected.
                    settled @ (Ok(()) | Err(SyncError::Full)) => drop(request.send(settled)),
                    Err(error) => {
                        let _ = request.send(Err(told(&error)));
                        return Err(error);
                    }
                }
            }
        }
        *retry = FIRST_RETRY;
    }
}
