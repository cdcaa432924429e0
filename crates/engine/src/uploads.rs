//! Files that clients send for builds: archives on the disk of the server, each team's its own.
//!
//! An archive is named by the digest that its client counted over what is in it, which nobody here
//! can check: whoever lies to it lies to his own team alone.

mod incoming;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use shoal_core::build::FilesHash;
use shoal_core::id::TeamId;
pub use shoal_core::ports::builds::UploadError;
use tempfile::{NamedTempFile, TempPath};

pub use self::incoming::IncomingUpload;
use self::incoming::{Coming, Taken};
use crate::config::EngineConfig;

/// How many archives of the largest size are kept for a team.
const TEAM_MAX: u64 = 4;

/// The part of the file system that the archives of all teams may have when nothing is said.
const ALL_PART: u64 = 4;

/// The part of the file system that they leave free, and the most that they leave, in bytes.
const RESERVE_PART: u64 = 20;
const RESERVE_MOST: u64 = 1 << 30;

/// How long an archive stays after it was last needed.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Where archives are.
#[derive(Debug)]
pub(crate) struct Uploads {
    directory: PathBuf,
    /// How many bytes are kept for a team.
    team_max: u64,
    /// How many bytes are kept for all teams.
    all_max: u64,
    /// How many bytes of the file system stay free, for the server's own records.
    reserve: u64,
    /// The room that is taken, of all teams. Held as long as it takes to count.
    taken: Mutex<Taken>,
    /// Of each team one at a time makes room and takes it, which is as slow as the disk.
    making: Mutex<HashMap<TeamId, Arc<Mutex<()>>>>,
    coming: Coming,
}

impl Uploads {
    /// Opens the directory, making it when there is none, and clears what is half or old.
    pub(crate) fn open(config: &EngineConfig) -> io::Result<Self> {
        let directory = config.uploads.clone();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let size = space(&directory)?.0;
        let all_max = config.uploads_of_all.unwrap_or(size / ALL_PART);
        let usual = config.upload_max.saturating_mul(TEAM_MAX).min(all_max / 2);
        let uploads = Self {
            directory,
            team_max: config.uploads_per_team.unwrap_or(usual).min(all_max),
            all_max,
            reserve: (size / RESERVE_PART).min(RESERVE_MOST),
            taken: Mutex::default(),
            making: Mutex::default(),
            coming: Coming::default(),
        };
        uploads.clear()?;
        Ok(uploads)
    }

    fn clear(&self) -> io::Result<()> {
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                // Half an upload of the last server.
                fs::remove_file(entry.path())?;
                continue;
            }
            for file in fs::read_dir(entry.path())? {
                let file = file?;
                let age = now.duration_since(file.metadata()?.modified()?);
                if age.is_ok_and(|age| age > KEPT) {
                    fs::remove_file(file.path())?;
                }
            }
        }
        Ok(())
    }

    fn path(&self, team: TeamId, hash: &FilesHash) -> PathBuf {
        self.directory.join(team.to_string()).join(hash.as_str())
    }

    /// The archive, when it is here; it stays for a while from now on.
    pub(crate) fn find(&self, team: TeamId, hash: &FilesHash) -> Option<PathBuf> {
        let path = self.path(team, hash);
        let file = fs::File::options().append(true).open(&path).ok()?;
        // One that cannot be marked as used is used all the same.
        let _ = file.set_modified(SystemTime::now());
        Some(path)
    }

    /// A file to be filled, which goes by itself unless it is kept.
    pub(crate) fn temporary(&self) -> io::Result<TempPath> {
        Ok(NamedTempFile::new_in(&self.directory)?.into_temp_path())
    }

    /// What whoever makes room for a team holds meanwhile.
    fn making(&self, team: TeamId) -> Arc<Mutex<()>> {
        self.making.lock().entry(team).or_default().clone()
    }

    /// Takes room for so many bytes more of an archive that is coming. As slow as the disk.
    fn take_room(
        &self,
        team: TeamId,
        coming: &FilesHash,
        bytes: u64,
        needed: Option<SystemTime>,
    ) -> Result<(), UploadError> {
        let making = self.making(team);
        let _making = making.lock();
        // It can only become less until it is taken.
        let all = self.taken.lock().of(team).saturating_add(bytes);
        self.make_room(team, coming, all, needed)?;
        // Counted and taken at once: two teams do not both have what is left.
        let kept = self.kept()?;
        let free = space(&self.directory)?.1;
        let mut taken = self.taken.lock();
        let sum = kept.saturating_add(taken.of_all()).saturating_add(bytes);
        if sum > self.all_max || free < self.reserve.saturating_add(bytes) {
            return Err(UploadError::AllFull(self.all_max));
        }
        taken.take(team, bytes);
        Ok(())
    }

    /// The bytes of the archives of all teams that are whole.
    fn kept(&self) -> io::Result<u64> {
        let mut bytes = 0;
        for team in fs::read_dir(&self.directory)? {
            let team = team?;
            if !team.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(team.path())? {
                match file?.metadata() {
                    Ok(about) => bytes += about.len(),
                    // It made room meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(bytes)
    }

    /// Gives a filled file the name under which it is found. `taken` is the room that its sender has,
    /// and gives back when this has ended. What was used since `needed` is needed still.
    fn keep(
        &self,
        team: TeamId,
        hash: &FilesHash,
        file: TempPath,
        taken: u64,
        needed: Option<SystemTime>,
    ) -> Result<(), UploadError> {
        let path = self.path(team, hash);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let filled = fs::File::options().append(true).open(&file)?;
        filled.set_modified(SystemTime::now())?;
        filled.sync_all()?;
        let size = filled.metadata()?.len();
        let making = self.making(team);
        let _making = making.lock();
        // What else is coming has its room.
        let others = self.taken.lock().of(team).saturating_sub(taken);
        self.make_room(team, hash, size.saturating_add(others), needed)?;
        file.persist(&path).map_err(|e| e.error)?;
        Ok(())
    }

    /// Removes what a team's builds have needed longest ago, until there is room for an archive of
    /// this size. What is needed still stays; nothing goes when that leaves no room.
    fn make_room(
        &self,
        team: TeamId,
        newest: &FilesHash,
        size: u64,
        needed: Option<SystemTime>,
    ) -> Result<(), UploadError> {
        let mut kept = Vec::new();
        let directory = self.directory.join(team.to_string());
        fs::create_dir_all(&directory)?;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // The same again takes the place of what was there.
            if entry.file_name() != newest.as_str() {
                let about = entry.metadata()?;
                kept.push((about.modified()?, about.len(), entry.path()));
            }
        }
        kept.sort();
        let mut bytes: u64 = size + kept.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        let mut dropped = Vec::new();
        for (used, size, path) in kept {
            if bytes <= self.team_max {
                break;
            }
            if needed.is_some_and(|needed| used >= needed) {
                return Err(UploadError::Full(self.team_max));
            }
            bytes -= size;
            dropped.push(path);
        }
        if bytes > self.team_max {
            return Err(UploadError::Full(self.team_max));
        }
        for path in dropped {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// How large the file system of a directory is, and how much of it is free, in bytes.
fn space(directory: &Path) -> io::Result<(u64, u64)> {
    let found = rustix::fs::statvfs(directory)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok((bytes(found.f_blocks), bytes(found.f_bavail)))
}

impl crate::Engine {
    /// What signs the right of a team to send these files, until a Unix second.
    #[must_use]
    pub fn upload_signature(&self, team: TeamId, hash: &FilesHash, expires: i64) -> String {
        let signature = self.shared.access.upload_signature(team, hash, expires);
        signature.reveal().to_owned()
    }

    /// Whether a signature gives that right.
    #[must_use]
    pub fn upload_is_signed(
        &self,
        team: TeamId,
        hash: &FilesHash,
        expires: i64,
        signature: &str,
    ) -> bool {
        let good = self.shared.access.upload_signature(team, hash, expires);
        good.matches(signature)
    }

    /// Whether a team has sent these files.
    #[must_use]
    pub fn has_upload(&self, team: TeamId, hash: &FilesHash) -> bool {
        self.shared.uploads.find(team, hash).is_some()
    }

    /// The largest archive, in bytes.
    #[must_use]
    pub fn upload_max(&self) -> u64 {
        self.shared.config.upload_max
    }

    /// A file to be filled with what is sent, which goes by itself unless it is kept.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new_upload(&self) -> io::Result<TempPath> {
        self.shared.uploads.temporary()
    }

    /// Keeps a filled file for the builds of a team.
    ///
    /// # Errors
    /// See [`UploadError`].
    pub(crate) fn keep_upload(
        &self,
        team: TeamId,
        hash: &FilesHash,
        file: TempPath,
    ) -> Result<(), UploadError> {
        let needed = self.uploads_needed_since(team);
        self.shared.uploads.keep(team, hash, file, 0, needed)
    }

    /// Since when a team's builds that have not ended may need archives, if there are any.
    fn uploads_needed_since(&self, team: TeamId) -> Option<SystemTime> {
        // Files are sent after their build was announced.
        let builds = self.shared.builds.records().into_iter();
        let under_way = builds.filter(|build| build.team == team && !build.status.is_final());
        let oldest = under_way.map(|build| build.created_at).min();
        oldest.map(|at| {
            let millis = u64::try_from(at.unix_millis()).unwrap_or_default();
            UNIX_EPOCH + Duration::from_millis(millis)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small enough to be filled.
    const LARGEST: u64 = 10;

    fn open(directory: &tempfile::TempDir) -> Uploads {
        open_with(directory, None)
    }

    fn open_with(directory: &tempfile::TempDir, of_all: Option<u64>) -> Uploads {
        let config = EngineConfig {
            upload_max: LARGEST,
            uploads_of_all: of_all,
            ..EngineConfig::new(directory.path())
        };
        Uploads::open(&config).unwrap()
    }

    fn team(number: u8) -> TeamId {
        TeamId::from_entropy([number; 16])
    }

    fn hash(number: u8) -> FilesHash {
        hex::encode([number; 32]).parse().unwrap()
    }

    impl Uploads {
        fn send(
            &self,
            number: u8,
            bytes: u64,
            needed: Option<SystemTime>,
        ) -> Result<(), UploadError> {
            let file = self.temporary().unwrap();
            fs::write(&file, vec![0; usize::try_from(bytes).unwrap()]).unwrap();
            self.keep(team(1), &hash(number), file, 0, needed)
        }

        /// Lets an archive have been used so many hours ago.
        fn used(&self, number: u8, hours: u64) {
            let file = fs::File::options()
                .append(true)
                .open(self.path(team(1), &hash(number)));
            let at = SystemTime::now() - Duration::from_secs(hours * 3600);
            file.unwrap().set_modified(at).unwrap();
        }

        fn here(&self) -> Vec<u8> {
            let path = |number: &u8| self.path(team(1), &hash(*number));
            (1..=9).filter(|number| path(number).exists()).collect()
        }
    }

    #[test]
    fn what_is_half_goes_and_what_is_whole_is_its_teams() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = open(&directory);
        uploads.send(1, 1, None).unwrap();
        assert!(uploads.find(team(1), &hash(1)).is_some());
        assert!(uploads.find(team(2), &hash(1)).is_none());
        let half = uploads.temporary().unwrap().keep().unwrap();
        let again = open(&directory);
        assert!(!half.exists() && again.find(team(1), &hash(1)).is_some());
    }

    #[test]
    fn two_teams_leave_what_all_may_have_and_neither_takes_it_alone() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = open_with(&directory, Some(6 * LARGEST));
        assert_eq!(uploads.team_max, 3 * LARGEST);
        let take = |number: u8, bytes| uploads.take_room(team(number), &hash(9), bytes, None);
        take(1, 3 * LARGEST).unwrap();
        assert!(matches!(take(1, 1), Err(UploadError::Full(_))));
        take(2, 3 * LARGEST).unwrap();
        let refused = take(3, 1).unwrap_err();
        assert!(matches!(refused, UploadError::AllFull(60)), "{refused}");
        assert!(refused.to_string().contains("60 bytes"), "{refused}");
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = open(&directory);
        for number in 1..=4 {
            uploads.send(number, LARGEST, None).unwrap();
            uploads.used(number, 10 - u64::from(number));
        }
        assert_eq!(uploads.here(), [1, 2, 3, 4]);
        // It was needed again since.
        uploads.find(team(1), &hash(1)).unwrap();
        uploads.send(5, LARGEST, None).unwrap();
        assert_eq!(uploads.here(), [1, 3, 4, 5]);
        uploads.send(5, LARGEST, None).unwrap();
        assert_eq!(uploads.here(), [1, 3, 4, 5]);
    }

    #[test]
    fn what_builds_need_that_have_not_ended_makes_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = open(&directory);
        for (number, hours) in [(1, 30), (2, 3), (3, 2), (4, 1)] {
            uploads.send(number, LARGEST, None).unwrap();
            uploads.used(number, hours);
        }
        let needed = Some(SystemTime::now() - Duration::from_secs(4 * 3600));
        uploads.send(5, LARGEST, needed).unwrap();
        assert_eq!(uploads.here(), [2, 3, 4, 5]);
        let refused = uploads.send(6, 1, needed).unwrap_err();
        assert!(refused.to_string().contains("40 bytes"), "{refused}");
        assert_eq!(uploads.here(), [2, 3, 4, 5]);
        // The oldest of the builds has ended.
        let needed = Some(SystemTime::now() - Duration::from_secs(9000));
        uploads.send(6, 1, needed).unwrap();
        assert_eq!(uploads.here(), [3, 4, 5, 6]);
        uploads.used(3, 20);
        // Nothing goes for one that finds no room all the same.
        assert!(uploads.send(7, 2 * LARGEST, needed).is_err());
        assert_eq!(uploads.here(), [3, 4, 5, 6]);
    }
}
