//! An archive while it is uploaded. Its space is reserved before its bytes are written, so that
//! incoming archives count against the limits of a team.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::build::FilesHash;
use shoal_core::id::TeamId;
use tempfile::TempPath;
use tokio::sync::Notify;

use super::{UploadError, Uploads};

/// How many bytes are reserved ahead of those that have arrived.
const RESERVE_AHEAD: u64 = 16 << 20;

/// The archives that are being uploaded.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    archives: Mutex<HashSet<(TeamId, FilesHash)>>,
    /// Wakes callers that wait for another upload of the same archive.
    ended: Notify,
}

/// Reserved space of a team, released on drop.
struct Reservation {
    uploads: Arc<Uploads>,
    team: TeamId,
    bytes: u64,
}

impl Reservation {
    /// Reserves `wanted` bytes for an archive, or only the `required` ones when space is scarce. As
    /// slow as the disk.
    fn new(
        uploads: Arc<Uploads>,
        team: TeamId,
        hash: &FilesHash,
        wanted: u64,
        required: u64,
    ) -> Result<Self, UploadError> {
        let needed = uploads.needed_since(team);
        let archives = &uploads.archives;
        let bytes = match archives.reserve(team, hash, wanted, needed) {
            Ok(()) => wanted,
            Err(UploadError::Full(_) | UploadError::AllFull(_)) => {
                archives.reserve(team, hash, required, needed)?;
                required
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            uploads,
            team,
            bytes,
        })
    }

    /// Adds another reservation to this one.
    fn join(&mut self, mut more: Self) {
        self.bytes += std::mem::take(&mut more.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.uploads.archives.reserved.lock();
        reserved.release(self.team, self.bytes);
    }
}

/// The exclusive right to upload an archive.
struct UploadLock {
    uploads: Arc<Uploads>,
    key: (TeamId, FilesHash),
}

impl Drop for UploadLock {
    fn drop(&mut self) {
        let in_flight = &self.uploads.in_flight;
        in_flight.archives.lock().remove(&self.key);
        in_flight.ended.notify_waiters();
    }
}

/// An archive that is being uploaded. Dropping it discards its bytes, unless it is kept.
///
/// The fields are dropped in this order: the file is removed before its space is released.
pub(crate) struct IncomingUpload {
    file: Option<TempPath>,
    arrived: u64,
    reservation: Reservation,
    lock: UploadLock,
}

impl IncomingUpload {
    /// The file to write to.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reserves space for this many more bytes, before they are written. A caller that stops waiting
    /// has reserved nothing.
    ///
    /// # Errors
    /// See [`UploadError`].
    pub(crate) async fn reserve(&mut self, bytes: u64) -> Result<(), UploadError> {
        let uploads = &self.reservation.uploads;
        let max = uploads.max_bytes;
        let arrived = self.arrived.saturating_add(bytes);
        if arrived > max {
            return Err(UploadError::TooLarge(max));
        }
        let has = self.reservation.bytes;
        if arrived > has {
            let (uploads, (team, hash)) = (uploads.clone(), self.lock.key.clone());
            let ahead = arrived.saturating_add(RESERVE_AHEAD).min(max);
            let (wanted, required) = (ahead - has, arrived - has);
            let reserving = move || Reservation::new(uploads, team, &hash, wanted, required);
            let more = tokio::task::spawn_blocking(reserving).await;
            self.reservation.join(more.map_err(io::Error::other)??);
        }
        self.arrived = arrived;
        Ok(())
    }

    /// Keeps the archive for the builds of the team, under its name. As slow as a sync of the disk.
    ///
    /// # Errors
    /// See [`UploadError`].
    pub(crate) fn keep(mut self) -> Result<(), UploadError> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let file = self.file.take().ok_or_else(gone)?;
        let uploads = &self.reservation.uploads;
        let (team, hash) = &self.lock.key;
        let needed = uploads.needed_since(*team);
        let archives = &uploads.archives;
        archives.keep(*team, hash, file, self.reservation.bytes, needed)
    }
}

impl Uploads {
    /// Begins the upload of an archive for a team. An archive is uploaded once at a time: a second
    /// caller waits for the first.
    ///
    /// # Errors
    /// When its file cannot be created.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        team: TeamId,
        hash: &FilesHash,
    ) -> io::Result<IncomingUpload> {
        let key = (team, hash.clone());
        let in_flight = &self.in_flight;
        loop {
            let ended = in_flight.ended.notified();
            let mut ended = std::pin::pin!(ended);
            // Before the check: an upload that ends in between must wake this caller.
            ended.as_mut().enable();
            if in_flight.archives.lock().insert(key.clone()) {
                break;
            }
            ended.await;
        }
        let lock = UploadLock {
            uploads: self.clone(),
            key,
        };
        Ok(IncomingUpload {
            file: Some(self.temporary().await?),
            arrived: 0,
            reservation: Reservation {
                uploads: self.clone(),
                team,
                bytes: 0,
            },
            lock,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
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
    async fn an_upload_that_waits_for_space_blocks_no_other_team_and_leaks_no_reservation() {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        let uploads = &engine.shared.uploads;
        let (mine, other) = (team(1), team(2));
        let mut waits = uploads.begin(mine, &hash(1)).await.unwrap();
        let mut goes_on = uploads.begin(other, &hash(1)).await.unwrap();
        let evicting = uploads.archives.evicting(mine);
        let (held, holds) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let slow = evicting.clone();
        let slow = std::thread::spawn(move || {
            let _evicting = slow.lock();
            held.send(()).unwrap();
            released.recv().unwrap();
        });
        holds.recv().unwrap();
        let holders = || Arc::strong_count(&evicting);
        let before = holders();
        let mut waiting = Box::pin(waits.reserve(1));
        assert!(waiting.as_mut().now_or_never().is_none());
        goes_on.reserve(1).await.unwrap();
        assert!(uploads.archives.reserved.lock().of(other) > 0);
        until("waiting for the disk", || holders() > before);
        drop(waiting);
        drop(waits);
        release.send(()).unwrap();
        slow.join().unwrap();
        // The blocking task still reserves the space, and releases it at once.
        until("reserved", || holders() == 2);
        until("released", || {
            uploads.archives.reserved.lock().of(mine) == 0
        });
        let mut again = uploads.begin(mine, &hash(1)).await.unwrap();
        again.reserve(1).await.unwrap();
        assert!(uploads.archives.reserved.lock().of(mine) > 0);
        drop((again, goes_on));
        assert!(uploads.archives.reserved.lock().is_empty());
    }

    #[tokio::test]
    async fn a_file_is_removed_before_its_space_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        let uploads = &engine.shared.uploads;
        let mut incoming = uploads.begin(team(1), &hash(1)).await.unwrap();
        incoming.reserve(1).await.unwrap();
        let path = incoming.path().unwrap().to_owned();
        // No space can be released while this is locked.
        let reserved = uploads.archives.reserved.lock();
        let dropping = std::thread::spawn(move || drop(incoming));
        until("gone", || !path.exists());
        drop(reserved);
        dropping.join().unwrap();
        assert_eq!(uploads.archives.reserved.lock().of(team(1)), 0);
    }
}
