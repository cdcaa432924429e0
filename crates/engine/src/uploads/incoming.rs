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

    pub(super) fn of_all(&self) -> u64 {
        self.0.values().copied().fold(0, u64::saturating_add)
    }

    pub(super) fn take(&mut self, team: TeamId, bytes: u64) {
        let all = self.of(team).saturating_add(bytes);
        self.0.insert(team, all);
    }

    fn give_back(&mut self, team: TeamId, bytes: u64) {
        match self.of(team).saturating_sub(bytes) {
            0 => self.0.remove(&team),
            left => self.0.insert(team, left),
        };
    }
}

/// Room that is taken for a team, until this is dropped.
struct Room {
    engine: Engine,
    team: TeamId,
    bytes: u64,
}

impl Room {
    /// Takes room for an archive: for `wanted` bytes, or for those that it `needs` where there is no
    /// more. As slow as the disk.
    fn take(
        engine: Engine,
        team: TeamId,
        hash: &FilesHash,
        wanted: u64,
        needs: u64,
    ) -> Result<Self, UploadError> {
        let needed = engine.uploads_needed_since(team);
        let uploads = &engine.shared.uploads;
        let bytes = match uploads.take_room(team, hash, wanted, needed) {
            Ok(()) => wanted,
            Err(UploadError::Full(_) | UploadError::AllFull(_)) => {
                uploads.take_room(team, hash, needs, needed)?;
                needs
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            engine,
            team,
            bytes,
        })
    }

    /// The room of both.
    fn join(&mut self, mut more: Self) {
        self.bytes += std::mem::take(&mut more.bytes);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let taken = &self.engine.shared.uploads.taken;
        taken.lock().give_back(self.team, self.bytes);
    }
}

/// The right to send an archive, which one has at a time.
struct Turn {
    engine: Engine,
    key: (TeamId, FilesHash),
}

impl Drop for Turn {
    fn drop(&mut self) {
        let coming = &self.engine.shared.uploads.coming;
        coming.under_way.lock().remove(&self.key);
        coming.ended.notify_waiters();
    }
}

/// An archive that is being sent. What came of it goes with this, unless it is kept.
///
/// What is written first goes first: the room of a file is given back when the file has gone.
pub struct IncomingUpload {
    file: Option<TempPath>,
    came: u64,
    room: Room,
    turn: Turn,
}

impl IncomingUpload {
    /// Where what comes is written to.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Takes room for so many bytes more, before they are written. Whoever stops waiting for it has
    /// taken none.
    ///
    /// # Errors
    /// See [`UploadError`].
    pub async fn coming(&mut self, bytes: u64) -> Result<(), UploadError> {
        let most = self.room.engine.upload_max();
        let came = self.came.saturating_add(bytes);
        if came > most {
            return Err(UploadError::TooLarge(most));
        }
        let has = self.room.bytes;
        if came > has {
            let (engine, (team, hash)) = (self.room.engine.clone(), self.turn.key.clone());
            // Near the end of the room no more is taken than is needed.
            let (wanted, needs) = (came.saturating_add(STEP).min(most) - has, came - has);
            let taking = move || Room::take(engine, team, &hash, wanted, needs);
            let taken = tokio::task::spawn_blocking(taking).await;
            self.room.join(taken.map_err(io::Error::other)??);
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
        let engine = &self.room.engine;
        let (team, hash) = &self.turn.key;
        let needed = engine.uploads_needed_since(*team);
        let uploads = &engine.shared.uploads;
        uploads.keep(*team, hash, file, self.room.bytes, needed)
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
        let turn = Turn {
            engine: self.clone(),
            key,
        };
        let engine = self.clone();
        let made = tokio::task::spawn_blocking(move || engine.new_upload()).await;
        Ok(IncomingUpload {
            file: Some(made.map_err(io::Error::other)??),
            came: 0,
            room: Room {
                engine: self.clone(),
                team,
                bytes: 0,
            },
            turn,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use futures_util::FutureExt;

    use super::*;
    use crate::test_util;

    fn team(number: u8) -> TeamId {
        TeamId::from_entropy([number; 16])
    }

    fn hash(number: u8) -> FilesHash {
        hex::encode([number; 32]).parse().unwrap()
    }

    fn until(what: &str, so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !so() {
            assert!(Instant::now() < end, "never {what}");
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_room_holds_up_nobody_and_leaves_none_taken() {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        let uploads = &engine.shared.uploads;
        let (mine, other) = (team(1), team(2));
        let mut waits = engine.begin_upload(mine, &hash(1)).await.unwrap();
        let mut goes_on = engine.begin_upload(other, &hash(1)).await.unwrap();
        let making = uploads.making(mine);
        let (held, holds) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let slow = making.clone();
        let slow = std::thread::spawn(move || {
            let _making = slow.lock();
            held.send(()).unwrap();
            released.recv().unwrap();
        });
        holds.recv().unwrap();
        let makers = || Arc::strong_count(&making);
        let before = makers();
        let mut waiting = Box::pin(waits.coming(1));
        assert!(waiting.as_mut().now_or_never().is_none());
        goes_on.coming(1).await.unwrap();
        assert!(uploads.taken.lock().of(other) > 0);
        until("waiting for the disk", || makers() > before);
        drop(waiting);
        drop(waits);
        release.send(()).unwrap();
        slow.join().unwrap();
        // What was under way for it takes it all the same, and gives it back.
        until("made", || makers() == 2);
        until("given back", || uploads.taken.lock().of(mine) == 0);
        let mut again = engine.begin_upload(mine, &hash(1)).await.unwrap();
        again.coming(1).await.unwrap();
        assert!(uploads.taken.lock().of(mine) > 0);
        drop((again, goes_on));
        assert!(uploads.taken.lock().0.is_empty());
    }

    #[tokio::test]
    async fn a_file_has_gone_before_its_room_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        let mut incoming = engine.begin_upload(team(1), &hash(1)).await.unwrap();
        incoming.coming(1).await.unwrap();
        let path = incoming.path().unwrap().to_owned();
        let uploads = &engine.shared.uploads;
        // Nobody gives anything back meanwhile.
        let taken = uploads.taken.lock();
        let dropping = std::thread::spawn(move || drop(incoming));
        until("gone", || !path.exists());
        drop(taken);
        dropping.join().unwrap();
        assert_eq!(uploads.taken.lock().of(team(1)), 0);
    }
}
