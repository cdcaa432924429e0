//! An archive while it is sent: its room is taken before its bytes are, so that what is coming counts
//! among what a team has.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use parking_lot::Mutex;
use shoal_core::build::FilesHash;
use shoal_core::id::TeamId;
use tempfile::TempPath;
use tokio::sync::Notify;

use super::UploadError;
use crate::engine::Engine;

/// How much room is taken ahead of what comes, in bytes.
const STEP: u64 = 16 << 20;

/// What is being sent.
#[derive(Debug, Default)]
pub(super) struct Coming {
    under_way: Mutex<HashSet<(TeamId, FilesHash)>>,
    /// One of them has ended.
    ended: Notify,
}

/// The bytes for which room is taken, of each team.
#[derive(Debug, Default)]
pub(super) struct Taken(HashMap<TeamId, u64>);

impl Taken {
    pub(super) fn of(&self, team: TeamId) -> u64 {
        self.0.get(&team).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, team: TeamId, bytes: u64) {
        if bytes == 0 {
            self.0.remove(&team);
        } else {
            self.0.insert(team, bytes);
        }
    }

    pub(super) fn give_back(&mut self, team: TeamId, bytes: u64) {
        self.set(team, self.of(team).saturating_sub(bytes));
    }
}

/// An archive that is being sent. What came of it goes with this, unless it is kept.
pub struct IncomingUpload {
    engine: Engine,
    team: TeamId,
    hash: FilesHash,
    file: Option<TempPath>,
    came: u64,
    taken: u64,
}

impl IncomingUpload {
    /// Where what comes is written to.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Takes room for so many bytes more, before they are written.
    ///
    /// # Errors
    /// See [`UploadError`].
    pub fn coming(&mut self, bytes: u64) -> Result<(), UploadError> {
        let (shared, most) = (&self.engine.shared, self.engine.upload_max());
        let came = self.came.saturating_add(bytes);
        if came > most {
            return Err(UploadError::TooLarge(most));
        }
        if came > self.taken {
            let wanted = came.saturating_add(STEP).min(most);
            let needed = self.engine.uploads_needed_since(self.team);
            let uploads = &shared.uploads;
            // Near the end of the room no more is taken than is needed.
            let first = uploads.take_room(self.team, &self.hash, wanted - self.taken, needed);
            self.taken = match first {
                Ok(()) => wanted,
                Err(UploadError::Full(_)) => {
                    uploads.take_room(self.team, &self.hash, came - self.taken, needed)?;
                    came
                }
                Err(error) => return Err(error),
            };
        }
        self.came = came;
        Ok(())
    }

    /// Keeps what came for the builds of the team, under its name. Takes the time of a sync.
    ///
    /// # Errors
    /// See [`UploadError`].
    pub fn keep(mut self) -> Result<(), UploadError> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let file = self.file.take().ok_or_else(gone)?;
        let needed = self.engine.uploads_needed_since(self.team);
        let uploads = &self.engine.shared.uploads;
        uploads.keep(self.team, &self.hash, file, &mut self.taken, needed)
    }
}

impl Drop for IncomingUpload {
    fn drop(&mut self) {
        let uploads = &self.engine.shared.uploads;
        uploads.keeping.lock().give_back(self.team, self.taken);
        let key = (self.team, self.hash.clone());
        uploads.coming.under_way.lock().remove(&key);
        uploads.coming.ended.notify_waiters();
    }
}

impl Engine {
    /// Begins to take an archive for a team. The same archive is taken once at a time: whoever sends
    /// it meanwhile waits.
    ///
    /// # Errors
    /// When no file can be made for it.
    pub async fn begin_upload(&self, team: TeamId, hash: &FilesHash) -> io::Result<IncomingUpload> {
        let (uploads, key) = (&self.shared.uploads, (team, hash.clone()));
        loop {
            let ended = uploads.coming.ended.notified();
            let mut ended = std::pin::pin!(ended);
            // Whoever ends between the two lines is heard of.
            ended.as_mut().enable();
            if uploads.coming.under_way.lock().insert(key.clone()) {
                break;
            }
            ended.await;
        }
        let mut incoming = IncomingUpload {
            engine: self.clone(),
            team,
            hash: hash.clone(),
            file: None,
            came: 0,
            taken: 0,
        };
        incoming.file = Some(self.new_upload()?);
        Ok(incoming)
    }
}
