//! Files that clients send for builds: archives on the disk of the server, each team's its own.
//!
//! An archive is named by the digest that its client counted over what is in it, which nobody here
//! can check: whoever lies to it lies to his own team alone.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use shoal_core::build::FilesHash;
use shoal_core::id::TeamId;
use tempfile::{NamedTempFile, TempPath};

/// The largest archive, in bytes, unless the configuration says another.
pub const UPLOAD_MAX: u64 = 4 << 30;

/// How much is kept for a team beside its latest archive, in bytes.
const TEAM_MAX: u64 = 4 << 30;

/// How long an archive stays after it was last needed.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Where archives are.
#[derive(Debug)]
pub(crate) struct Uploads {
    directory: PathBuf,
}

impl Uploads {
    /// Opens the directory, making it when there is none, and clears what is half or old.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let uploads = Self { directory };
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

    /// Gives a filled file the name under which it is found.
    pub(crate) fn keep(&self, team: TeamId, hash: &FilesHash, file: TempPath) -> io::Result<()> {
        let path = self.path(team, hash);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        sync(&file)?;
        file.persist(&path).map_err(|e| e.error)?;
        self.make_room(team, hash)
    }

    /// Removes what a team's builds have needed longest ago, until the rest is within its bound. What
    /// was sent just now stays.
    fn make_room(&self, team: TeamId, newest: &FilesHash) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(self.directory.join(team.to_string()))? {
            let entry = entry?;
            let about = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                about => about?,
            };
            if entry.file_name() != newest.as_str() {
                kept.push((about.modified()?, about.len(), entry.path()));
            }
        }
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, path) in kept {
            if bytes <= TEAM_MAX {
                break;
            }
            match fs::remove_file(path) {
                // Another upload has made the same room.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => bytes -= size,
            }
        }
        Ok(())
    }
}

fn sync(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

impl crate::Engine {
    /// What signs the right of a team to send these files, until a Unix second.
    #[must_use]
    pub fn upload_signature(&self, team: TeamId, hash: &FilesHash, expires: i64) -> String {
        let signature = self.shared.seed.upload_signature(team, hash, expires);
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
        let good = self.shared.seed.upload_signature(team, hash, expires);
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
    pub fn new_upload(&self) -> io::Result<TempPath> {
        self.shared.uploads.temporary()
    }

    /// Keeps a filled file for the builds of a team.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_upload(&self, team: TeamId, hash: &FilesHash, file: TempPath) -> io::Result<()> {
        self.shared.uploads.keep(team, hash, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_goes_and_what_is_whole_is_its_teams() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = Uploads::open(directory.path().join("uploads")).unwrap();
        let hash: FilesHash = "0a".repeat(32).parse().unwrap();
        let [one, other] = [1, 2].map(|n| TeamId::from_entropy([n; 16]));
        let file = uploads.temporary().unwrap();
        fs::write(&file, "x").unwrap();
        uploads.keep(one, &hash, file).unwrap();
        assert!(uploads.find(one, &hash).is_some());
        assert!(uploads.find(other, &hash).is_none());
        let half = uploads.temporary().unwrap().keep().unwrap();
        let again = Uploads::open(directory.path().join("uploads")).unwrap();
        assert!(!half.exists() && again.find(one, &hash).is_some());
    }
}
