//! The files of sessions, and of their machines while these live.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::ports::inside::{InsideError, SandboxClient};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::sessions::SessionError;
use shoal_core::ports::sessions::files::{
    FileError, SessionFile, SessionFiles, SyncView, WriteFile,
};
use shoal_core::session::path::SessionPath;

use super::live::Live;
use super::machine::Keep;
use super::{Service, SessionService, external, nesting};
use crate::files::follow::Connection;
use crate::files::sync::SyncError;

/// How long a machine that ends at once may take to send its changes.
const SOON: Duration = Duration::from_secs(10);

/// How long a list waits for the machine's changes.
const BRIEFLY: Duration = Duration::from_secs(1);

/// The timeout of one without a caller.
const LATE: Duration = Duration::from_secs(60);

/// How long the first comparison of both sides may take.
const OPENING: Duration = Duration::from_secs(300);

impl From<SyncError> for SessionError {
    fn from(error: SyncError) -> Self {
        let message = error.to_string();
        match error {
            SyncError::Inside(inside) => inside.into(),
            SyncError::Store(store) => store.into(),
            SyncError::Full => InsideError::NoSpace(message).into(),
            SyncError::Ended => InsideError::Unreachable(message).into(),
        }
    }
}

impl Service {
    /// Makes the machine's files equal, and keeps them so. Called with the machine's lock.
    pub(super) async fn connect(
        &self,
        live: &Live,
        client: &Arc<dyn SandboxClient>,
    ) -> Result<(), SessionError> {
        let record = live.record();
        let Some(sandbox) = record.place_of_files().cloned() else {
            return Ok(());
        };
        let mut connection = live.connection.lock().await;
        if connection.as_ref().is_some_and(|open| open.is_to(&sandbox)) {
            return Ok(());
        }
        // The first files of an external machine are its owner's, not a template's: the session gets them.
        let fresh = record.filled.as_ref() != Some(&sandbox) && record.external.is_none();
        // The former one first: only one may watch.
        *connection = None;
        let home = nesting::make_home(&record.machine, client).await?;
        let files = live.files.clone();
        let opened = Connection::open(files, sandbox.clone(), client.home(home), fresh);
        let opened = tokio::time::timeout(OPENING, opened).await;
        let opened = opened.map_err(|_| SessionError::from(InsideError::TimedOut))??;
        if fresh {
            let filled = Some(sandbox);
            live.update(&*self.parts.store, |record| record.filled = filled)
                .await?;
        }
        *connection = Some(opened);
        Ok(())
    }

    /// Connects to the machines of all sessions, after a start of the server. A machine that sleeps is left alone.
    pub(super) async fn reconnect(self: Arc<Self>) {
        let all = self.all();
        let with_machine = all.iter().filter(|live| live.record().sandbox.is_some());
        join_all(with_machine.map(|live| async {
            let _alone = live.machine.lock().await;
            let connected = self.connect_if_awake(live).await;
            if let Err(error) = connected {
                let session = live.record().id;
                tracing::warn!(%session, %error, "cannot keep the files of a session equal; the next command tries again");
            }
        }))
        .await;
    }

    async fn connect_if_awake(&self, live: &Live) -> Result<(), SessionError> {
        if external::address(&live.record()).is_some() {
            return self.present(live).await.map(drop);
        }
        let Some(permit) = self.permit(live).await? else {
            return Ok(());
        };
        let user = nesting::user(&live.record().machine);
        match self.parts.access.open(&permit, user).await {
            Ok(client) => self.connect(live, &client).await,
            Err(SandboxError::Paused(_) | SandboxError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Syncs the machine's changes to this side before the machine ends. A machine that fails is given up; one whose changes
    /// this side cannot store is not.
    pub(super) async fn keep_files(&self, live: &Live, keep: Keep) -> Result<(), SessionError> {
        let time = match keep {
            Keep::All => LATE,
            Keep::IfPossible => SOON,
            Keep::Nothing => return Ok(()),
        };
        // First: a sleeping machine is not woken in vain.
        self.parts.contents.check().await?;
        let kept = async {
            if self.present(live).await?.is_some() {
                let connection = live.connection.lock().await;
                if let Some(settler) = connection.as_ref().map(Connection::settler) {
                    settler.settle().await?;
                }
            }
            Ok::<_, SessionError>(())
        };
        let late = || SessionError::from(InsideError::TimedOut);
        let kept = tokio::time::timeout(time, kept).await;
        let kept = kept.unwrap_or_else(|_| Err(late()));
        match (kept, keep) {
            (Err(error), Keep::IfPossible) if !matches!(error, SessionError::Store(_)) => {
                // The time may have run out because of it.
                self.parts.contents.check().await?;
                let session = live.record().id;
                tracing::warn!(%session, %error, "the last changes of files in a machine that ends may be lost");
                Ok(())
            }
            (kept, _) => kept,
        }
    }
}

/// Lets files that were written inside arrive here, so that the caller of a command finds its files. Does not wait long for
/// a machine that does not answer.
async fn settle_briefly(live: &Live) {
    let settler = match live.connection.try_lock() {
        Ok(connection) => connection.as_ref().map(Connection::settler),
        // It is being made.
        Err(_) => None,
    };
    if let Some(settler) = settler {
        // If it fails, the list has the known files, and the state says so.
        let _ = tokio::time::timeout(BRIEFLY, settler.settle()).await;
    }
}

impl SessionFiles for SessionService {
    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        below: Option<&'a SessionPath>,
    ) -> BoxFuture<'a, Result<Vec<SessionFile>, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            settle_briefly(&live).await;
            Ok(live.files.list(below).await?)
        })
    }

    fn read<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        path: &'a SessionPath,
    ) -> BoxFuture<'a, Result<(SessionFile, Bytes), SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            settle_briefly(&live).await;
            Ok(live.files.read(path).await?)
        })
    }

    fn write<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        file: WriteFile,
    ) -> BoxFuture<'a, Result<SessionFile, SessionError>> {
        Box::pin(async move {
            let live = self.0.editable(principal, id)?;
            Ok(live.files.write(file).await?)
        })
    }

    fn remove<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        path: &'a SessionPath,
    ) -> BoxFuture<'a, Result<usize, SessionError>> {
        Box::pin(async move {
            let live = self.0.editable(principal, id)?;
            Ok(live.files.remove(path).await?)
        })
    }

    fn rename<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        from: &'a SessionPath,
        to: &'a SessionPath,
    ) -> BoxFuture<'a, Result<usize, SessionError>> {
        Box::pin(async move {
            let live = self.0.editable(principal, id)?;
            Ok(live.files.rename(from, to).await?)
        })
    }

    fn sync<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<SyncView, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            settle_briefly(&live).await;
            Ok(live.files.sync_view().await?)
        })
    }
}

impl Service {
    /// A session whose files may change.
    fn editable(&self, principal: &Principal, id: &str) -> Result<Arc<Live>, SessionError> {
        let live = self.find(principal, id)?;
        if live.is_deleting() {
            return Err(FileError::Ending(live.record().id).into());
        }
        Ok(live)
    }
}
