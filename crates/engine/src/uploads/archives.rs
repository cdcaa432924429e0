//! The archives on disk, with the limits on their size.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use shoal_core::build::FilesHash;
use shoal_core::id::TeamId;
use shoal_core::ports::builds::UploadError;
use tempfile::{NamedTempFile, TempPath};

use crate::config::EngineConfig;

/// How many archives of the maximum size a team can keep by default.
const TEAM_MAX: u64 = 4;

/// The archives of all teams may fill one part in this many of the file system by default.
const ALL_PART: u64 = 4;

/// The archives leave one part in this many of the file system free.
const RESERVE_PART: u64 = 20;

/// They leave at most this many bytes free.
const RESERVE_MAX: u64 = 1 << 30;

/// How long an archive is kept after its last use.
const KEEP_UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// The bytes that uploads have reserved, by team.
#[derive(Debug, Default)]
pub(super) struct ReservedBytes(HashMap<TeamId, u64>);

impl ReservedBytes {
    pub(super) fn of(&self, team: TeamId) -> u64 {
        self.0.get(&team).copied().unwrap_or_default()
    }

    fn of_all(&self) -> u64 {
        self.0.values().copied().fold(0, u64::saturating_add)
    }

    fn add(&mut self, team: TeamId, bytes: u64) {
        let all = self.of(team).saturating_add(bytes);
        self.0.insert(team, all);
    }

    pub(super) fn release(&mut self, team: TeamId, bytes: u64) {
        match self.of(team).saturating_sub(bytes) {
            0 => self.0.remove(&team),
            left => self.0.insert(team, left),
        };
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A directory of archives, each owned by a team and named by the digest of its files.
#[derive(Debug)]
pub(super) struct Archives {
    directory: PathBuf,
    /// How many bytes a team may keep.
    team_max: u64,
    /// How many bytes all teams may keep.
    all_max: u64,
    /// How many bytes of the file system stay free, for the server's own records.
    reserve: u64,
    /// The space that uploads have reserved. Locked only while it is counted.
    pub(super) reserved: Mutex<ReservedBytes>,
    /// One lock per team: evicting and reserving are as slow as the disk.
    evicting: Mutex<HashMap<TeamId, Arc<Mutex<()>>>>,
}

impl Archives {
    /// Opens the directory, creates it if it is missing, and removes partial and old archives.
    pub(super) fn open(config: &EngineConfig) -> io::Result<Self> {
        let directory = config.uploads.clone();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let size = space(&directory)?.0;
        let all_max = config.uploads_of_all.unwrap_or(size / ALL_PART);
        let usual = config.upload_max.saturating_mul(TEAM_MAX).min(all_max / 2);
        let archives = Self {
            directory,
            team_max: config.uploads_per_team.unwrap_or(usual).min(all_max),
            all_max,
            reserve: (size / RESERVE_PART).min(RESERVE_MAX),
            reserved: Mutex::default(),
            evicting: Mutex::default(),
        };
        archives.clear()?;
        Ok(archives)
    }

    fn clear(&self) -> io::Result<()> {
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                // A partial upload of the previous server.
                fs::remove_file(entry.path())?;
                continue;
            }
            for file in fs::read_dir(entry.path())? {
                let file = file?;
                let age = now.duration_since(file.metadata()?.modified()?);
                if age.is_ok_and(|age| age > KEEP_UNUSED) {
                    fs::remove_file(file.path())?;
                }
            }
        }
        Ok(())
    }

    fn path(&self, team: TeamId, hash: &FilesHash) -> PathBuf {
        self.directory.join(team.to_string()).join(hash.as_str())
    }

    /// The path of an archive, if it exists. Marks it as used.
    pub(super) fn find(&self, team: TeamId, hash: &FilesHash) -> Option<PathBuf> {
        let path = self.path(team, hash);
        let file = fs::File::options().append(true).open(&path).ok()?;
        // An archive is usable even when it cannot be marked as used.
        let _ = file.set_modified(SystemTime::now());
        Some(path)
    }

    /// An empty file, removed when it is dropped unless it is kept.
    pub(super) fn temporary(&self) -> io::Result<TempPath> {
        Ok(NamedTempFile::new_in(&self.directory)?.into_temp_path())
    }

    /// The lock to hold while evicting archives of a team.
    pub(super) fn evicting(&self, team: TeamId) -> Arc<Mutex<()>> {
        self.evicting.lock().entry(team).or_default().clone()
    }

    /// Reserves bytes for an incoming archive. Archives used since `needed` are not evicted for it.
    /// As slow as the disk.
    pub(super) fn reserve(
        &self,
        team: TeamId,
        incoming: &FilesHash,
        bytes: u64,
        needed: Option<SystemTime>,
    ) -> Result<(), UploadError> {
        let evicting = self.evicting(team);
        let _evicting = evicting.lock();
        // Until it is reserved below, the sum can only shrink.
        let all = self.reserved.lock().of(team).saturating_add(bytes);
        self.evict_for(team, incoming, all, needed)?;
        // Counted and reserved under one lock: two teams cannot both get the remaining space.
        let kept = self.kept()?;
        let free = space(&self.directory)?.1;
        let mut reserved = self.reserved.lock();
        let sum = kept.saturating_add(reserved.of_all()).saturating_add(bytes);
        if sum > self.all_max || free < self.reserve.saturating_add(bytes) {
            return Err(UploadError::AllFull(self.all_max));
        }
        reserved.add(team, bytes);
        Ok(())
    }

    /// The size of the complete archives of all teams.
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
                    // It has just been evicted.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(bytes)
    }

    /// Moves a complete file to its final name. `reserved` is what its upload has reserved, and releases
    /// afterwards. Archives used since `needed` are not evicted for it.
    pub(super) fn keep(
        &self,
        team: TeamId,
        hash: &FilesHash,
        file: TempPath,
        reserved: u64,
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
        let evicting = self.evicting(team);
        let _evicting = evicting.lock();
        // The other incoming archives of the team keep their reservations.
        let others = self.reserved.lock().of(team).saturating_sub(reserved);
        self.evict_for(team, hash, size.saturating_add(others), needed)?;
        file.persist(&path).map_err(|e| e.error)?;
        Ok(())
    }

    /// Evicts the least recently used archives of a team until one of this size fits. Archives used
    /// since `needed` stay. Evicts nothing when the archive would not fit even so.
    fn evict_for(
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
            // An archive with the same name is replaced.
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

/// The size of the file system of a directory and its free space, in bytes.
fn space(directory: &Path) -> io::Result<(u64, u64)> {
    let found = rustix::fs::statvfs(directory)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok((bytes(found.f_blocks), bytes(found.f_bavail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum size of an archive, small enough to fill the directory.
    const LARGEST: u64 = 10;

    fn open(directory: &tempfile::TempDir) -> Archives {
        open_with(directory, None)
    }

    fn open_with(directory: &tempfile::TempDir, of_all: Option<u64>) -> Archives {
        let config = EngineConfig {
            upload_max: LARGEST,
            uploads_of_all: of_all,
            ..EngineConfig::new(directory.path())
        };
        Archives::open(&config).unwrap()
    }

    fn team(number: u8) -> TeamId {
        TeamId::from_entropy([number; 16])
    }

    fn hash(number: u8) -> FilesHash {
        hex::encode([number; 32]).parse().unwrap()
    }

    impl Archives {
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

        /// Sets the last use of an archive to so many hours ago.
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
    fn partial_archives_are_removed_and_complete_ones_belong_to_their_team() {
        let directory = tempfile::tempdir().unwrap();
        let archives = open(&directory);
        archives.send(1, 1, None).unwrap();
        assert!(archives.find(team(1), &hash(1)).is_some());
        assert!(archives.find(team(2), &hash(1)).is_none());
        let half = archives.temporary().unwrap().keep().unwrap();
        let again = open(&directory);
        assert!(!half.exists() && again.find(team(1), &hash(1)).is_some());
    }

    #[test]
    fn teams_share_the_limit_of_all_teams() {
        let directory = tempfile::tempdir().unwrap();
        let archives = open_with(&directory, Some(6 * LARGEST));
        assert_eq!(archives.team_max, 3 * LARGEST);
        let reserve = |number: u8, bytes| archives.reserve(team(number), &hash(9), bytes, None);
        reserve(1, 3 * LARGEST).unwrap();
        assert!(matches!(reserve(1, 1), Err(UploadError::Full(_))));
        reserve(2, 3 * LARGEST).unwrap();
        let refused = reserve(3, 1).unwrap_err();
        assert!(matches!(refused, UploadError::AllFull(60)), "{refused}");
        assert!(refused.to_string().contains("60 bytes"), "{refused}");
    }

    #[test]
    fn the_least_recently_used_archive_is_evicted() {
        let directory = tempfile::tempdir().unwrap();
        let archives = open(&directory);
        for number in 1..=4 {
            archives.send(number, LARGEST, None).unwrap();
            archives.used(number, 10 - u64::from(number));
        }
        assert_eq!(archives.here(), [1, 2, 3, 4]);
        // Using it again moves it to the end of the queue.
        archives.find(team(1), &hash(1)).unwrap();
        archives.send(5, LARGEST, None).unwrap();
        assert_eq!(archives.here(), [1, 3, 4, 5]);
        archives.send(5, LARGEST, None).unwrap();
        assert_eq!(archives.here(), [1, 3, 4, 5]);
    }

    #[test]
    fn archives_that_unfinished_builds_need_are_not_evicted() {
        let directory = tempfile::tempdir().unwrap();
        let archives = open(&directory);
        for (number, hours) in [(1, 30), (2, 3), (3, 2), (4, 1)] {
            archives.send(number, LARGEST, None).unwrap();
            archives.used(number, hours);
        }
        let needed = Some(SystemTime::now() - Duration::from_secs(4 * 3600));
        archives.send(5, LARGEST, needed).unwrap();
        assert_eq!(archives.here(), [2, 3, 4, 5]);
        let refused = archives.send(6, 1, needed).unwrap_err();
        assert!(refused.to_string().contains("40 bytes"), "{refused}");
        assert_eq!(archives.here(), [2, 3, 4, 5]);
        // The oldest of the builds has ended.
        let needed = Some(SystemTime::now() - Duration::from_secs(9000));
        archives.send(6, 1, needed).unwrap();
        assert_eq!(archives.here(), [3, 4, 5, 6]);
        archives.used(3, 20);
        // Nothing is evicted for an archive that would not fit anyway.
        assert!(archives.send(7, 2 * LARGEST, needed).is_err());
        assert_eq!(archives.here(), [3, 4, 5, 6]);
    }
}
