//! Files that are appended to and rotated by size.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::config::AuditConfig;

/// The files of all sources: `<name>.jsonl`, and rotated ones from `<name>.1.jsonl` (the newest) on.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    settings: AuditConfig,
}

impl Files {
    /// Creates the directory, for its owner only.
    pub(super) fn open(directory: PathBuf, settings: AuditConfig) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        Ok(Self {
            directory,
            settings,
        })
    }

    fn path(&self, name: &str, number: usize) -> PathBuf {
        self.directory.join(match number {
            0 => format!("{name}.jsonl"),
            number => format!("{name}.{number}.jsonl"),
        })
    }

    /// Appends complete lines, after rotating a full file.
    ///
    /// # Errors
    /// When the disk fails. None of the lines counts as written then.
    pub(super) fn append(&mut self, name: &str, lines: &[u8]) -> io::Result<()> {
        let path = self.path(name, 0);
        let mut file = open(&path)?;
        let bytes = file.metadata()?.len();
        if bytes > 0 && bytes + lines.len() as u64 > self.settings.bytes {
            file.sync_data()?;
            self.rotate(name)?;
            file = open(&path)?;
        }
        let before = file.metadata()?.len();
        file.write_all(lines).inspect_err(|_| {
            // Truncate a partial line.
            let _ = file.set_len(before);
        })
    }

    fn rotate(&self, name: &str) -> io::Result<()> {
        for number in (0..self.settings.keep).rev() {
            // This replaces the oldest.
            match fs::rename(self.path(name, number), self.path(name, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Syncs the files, so that their lines survive a power failure.
    pub(super) fn sync(&self) {
        for entry in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let synced = File::open(entry.path()).and_then(|file| file.sync_data());
            if let Err(error) = synced {
                tracing::warn!(%error, "cannot sync the audit log");
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}
