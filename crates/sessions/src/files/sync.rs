//! Keeps a machine's home directory and the session's files equal.
//!
//! All of its state is in the table, so it may be dropped at any moment: the next one starts from the stored state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use shoal_core::id::SandboxId;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::inside::home::{FileState, Found, HomeEvent, HomeEvents, HomeFiles};
use shoal_core::ports::sessions::files::RETURN_MAX;
use shoal_core::session::path::SessionPath;
use shoal_core::store::{RowChange, StoreError};

use super::{Files, known};

/// How many paths are looked at in one call.
const LOOKED: usize = 1024;

/// More files than a daemon reports.
const PRESENT_MAX: usize = 200_000;

/// How long the machine may take to send a file.
const READ_TIME: Duration = Duration::from_secs(60);

/// Why a synchronisation ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    /// The machine's side failed.
    #[error(transparent)]
    Inside(#[from] InsideError),
    /// The session's side failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session has no room for files of the machine.
    #[error("the session has no room for files of its machine: delete some")]
    Full,
    /// It has been ended.
    #[error("the files of the session are not kept equal any more")]
    Ended,
}

/// The two sides.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) files: Arc<Files>,
    pub(super) sandbox: SandboxId,
    pub(super) home: Arc<dyn HomeFiles>,
}

/// A machine that is kept equal.
pub(super) struct Sync {
    pub(super) side: Side,
    /// The machine's events.
    events: HomeEvents,
    /// The last flush that was reported.
    settled: u64,
}

/// The machine's report about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A file that returns.
    Present(FileState),
    /// No file.
    Absent,
}

impl Sync {
    /// Begins: makes both sides equal. `fresh` if the machine is unused: its files come from its template.
    pub(super) async fn begin(side: Side, fresh: bool) -> Result<Self, SyncError> {
        let events = side.home.watch(RETURN_MAX).await?;
        let mut sync = Self {
            side,
            events,
            settled: 0,
        };
        sync.side.set_machine().await?;
        let present = sync.first().await?;
        if fresh {
            sync.side.note_template(&present).await?;
        }
        let mut told = sync.side.missing(&present).await?;
        told.extend(
            present
                .into_iter()
                .map(|(path, state)| (path, Told::Present(state))),
        );
        sync.side.received(told).await?;
        sync.side.push().await?;
        sync.side.files.interrupted(None).await;
        Ok(sync)
    }

    /// The files that the machine has when the watch begins.
    async fn first(&mut self) -> Result<BTreeMap<SessionPath, FileState>, SyncError> {
        let mut present = BTreeMap::new();
        loop {
            match self.next().await? {
                HomeEvent::Present { path, state } => {
                    present.insert(path, state);
                    if present.len() > PRESENT_MAX {
                        let reason = format!("the machine tells more than {PRESENT_MAX} files");
                        return Err(InsideError::TooMuch(reason).into());
                    }
                }
                HomeEvent::Absent { path } | HomeEvent::Withheld { path } => {
                    present.remove(&path);
                }
                HomeEvent::Limited { path, reason } => self.side.limited(path, reason).await?,
                HomeEvent::Settled(_) => return Ok(present),
            }
        }
    }

    /// The next event.
    pub(super) async fn next(&mut self) -> Result<HomeEvent, SyncError> {
        let next = self.events.next().await;
        Ok(next.ok_or_else(|| InsideError::Unreachable("the watch has ended".to_owned()))??)
    }

    /// Takes an event and those that are there already.
    pub(super) async fn event(&mut self, first: HomeEvent) -> Result<(), SyncError> {
        let mut told = BTreeMap::new();
        let mut next = Some(first);
        let mut ended = None;
        while let Some(event) = next.take() {
            match event {
                HomeEvent::Present { path, state } => {
                    told.insert(path, Told::Present(state));
                }
                HomeEvent::Absent { path } => {
                    told.insert(path, Told::Absent);
                }
                // The session keeps its file. The next change of it reports the state of the machine.
                HomeEvent::Withheld { path } => {
                    told.remove(&path);
                }
                HomeEvent::Limited { path, reason } => self.side.limited(path, reason).await?,
                HomeEvent::Settled(flush) => self.settled = self.settled.max(flush),
            }
            match futures_util::FutureExt::now_or_never(self.events.next()) {
                Some(Some(Ok(event))) if told.len() < LOOKED => next = Some(event),
                Some(Some(Ok(event))) => {
                    self.side.received(told.into_iter().collect()).await?;
                    told = BTreeMap::new();
                    next = Some(event);
                }
                Some(Some(Err(error))) => ended = Some(error),
                Some(None) => ended = Some(InsideError::Unreachable("the watch has ended".into())),
                None => {}
            }
        }
        self.side.received(told.into_iter().collect()).await?;
        ended.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Brings everything that has changed before this call to the other side.
    pub(super) async fn settle(&mut self) -> Result<(), SyncError> {
        let flush = self.side.home.flush().await?;
        while self.settled < flush {
            let event = self.next().await?;
            self.event(event).await?;
        }
        // There may be room now, and obstacles may be gone: no event reports that.
        let again = self.side.files.table().await?.try_again();
        let again = again.into_iter();
        let again = again.map(|(path, state)| (path, Told::Present(state)));
        self.side.received(again.collect()).await?;
        self.side.push().await?;
        if self.side.files.table().await?.has_refused() {
            return Err(SyncError::Full);
        }
        Ok(())
    }
}

impl Side {
    /// The table is about this machine from now on.
    async fn set_machine(&self) -> Result<(), StoreError> {
        let mut table = self.files.table().await?;
        let others = table.rows().filter(|(_, row)| {
            let other = row
                .machine
                .as_ref()
                .is_some_and(|known| known.sandbox != self.sandbox);
            other && row.file.is_none()
        });
        let forgotten = others.map(|(path, _)| (path.clone(), None)).collect();
        self.files.commit(&mut table, forgotten).await?;
        table.set_machine(Some(self.sandbox.clone()));
        self.files.told.sync(&table);
        Ok(())
    }

    /// Notes the files that the machine came with.
    async fn note_template(
        &self,
        present: &BTreeMap<SessionPath, FileState>,
    ) -> Result<(), StoreError> {
        let mut table = self.files.table().await?;
        let mut changes: Vec<RowChange> = Vec::new();
        for (path, state) in present {
            let mut row = known(table.row(path), &self.sandbox);
            if let Some(machine) = &mut row.machine
                && machine.agreed.is_none()
                && machine.writing.is_none()
            {
                // A file in the way of the session's files is removed, like one that the session removed.
                if table.in_the_way(path).is_some() {
                    machine.agreed = Some(*state);
                } else {
                    machine.template = Some(state.digest);
                }
                changes.push((path.clone(), Some(row)));
            }
        }
        self.files.commit(&mut table, changes).await
    }

    /// The known files that the watch has not reported: they are gone.
    async fn missing(
        &self,
        present: &BTreeMap<SessionPath, FileState>,
    ) -> Result<Vec<(SessionPath, Told)>, SyncError> {
        let asked: Vec<SessionPath> = {
            let table = self.files.table().await?;
            let rows = table.rows().filter(|(path, row)| {
                let known = row.in_machine(&self.sandbox);
                let was_there = known.expected().is_some() || known.writing.is_some();
                was_there && !present.contains_key(*path)
            });
            rows.map(|(path, _)| path.clone()).collect()
        };
        let mut missing = Vec::new();
        for paths in asked.chunks(LOOKED) {
            let found = self.home.look(paths.to_vec()).await?;
            for (path, found) in paths.iter().zip(found) {
                match found {
                    Found::Nothing => missing.push((path.clone(), Told::Absent)),
                    Found::File(state) => self.note_written(path, state).await?,
                    // It is not a file of the session, and stays.
                    Found::Other(_) => {}
                }
            }
        }
        Ok(missing)
    }

    /// Notes a file that does not return, and that a change had written before its outcome was known.
    pub(super) async fn note_written(
        &self,
        path: &SessionPath,
        state: FileState,
    ) -> Result<(), StoreError> {
        let mut table = self.files.table().await?;
        let mut row = known(table.row(path), &self.sandbox);
        if let Some(machine) = &mut row.machine
            && machine.writing == Some(state.digest)
        {
            machine.agreed = Some(state);
            machine.writing = None;
            machine.template = None;
            let change = vec![(path.clone(), Some(row))];
            self.files.commit(&mut table, change).await?;
        }
        Ok(())
    }

    async fn limited(&self, path: Option<SessionPath>, reason: String) -> Result<(), StoreError> {
        self.files.table().await?.limit(path, reason);
        Ok(())
    }

    /// Reads a file; none when it has changed since, or is larger.
    pub(super) async fn read(
        &self,
        path: &SessionPath,
        most: u64,
    ) -> Result<Option<Bytes>, SyncError> {
        let read = async {
            let mut file = match self.home.read(path.clone()).await {
                Ok(file) => file.contents,
                // It is gone, or a directory now: an event follows.
                Err(InsideError::NotFound(_) | InsideError::Invalid(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            let mut contents = BytesMut::new();
            while let Some(piece) = file.try_next().await.map_err(lost)? {
                if (contents.len() + piece.len()) as u64 > most {
                    return Ok(None);
                }
                contents.extend_from_slice(&piece);
            }
            Ok(Some(contents.freeze()))
        };
        match tokio::time::timeout(READ_TIME, read).await {
            Ok(read) => Ok(read?),
            Err(_) => Err(InsideError::TimedOut.into()),
        }
    }
}

fn lost(error: impl std::fmt::Display) -> InsideError {
    InsideError::Unreachable(error.to_string())
}
