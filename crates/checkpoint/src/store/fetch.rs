//! The notes by which the node agent tells the runtime how the fetch of a checkpoint is getting on.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::{Store, StoreError};
use crate::id::Key;

/// The directory of the notes.
pub(super) const DIRECTORY: &str = ".fetch";
/// Begins the note of a fetch that failed; the reason follows.
const FAILED: &str = "failed: ";
/// The longest reason, in bytes.
const LONGEST: usize = 2048;

/// How a fetch is getting on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// No fetch runs: none was requested, or the checkpoint is there.
    None,
    /// It is under way.
    Running,
    /// The last attempt failed, for this reason. There will be others.
    Failed(String),
}

/// A fetch that is under way, or waits for its next attempt. Dropped, it leaves no note.
#[derive(Debug)]
pub struct Fetching {
    path: PathBuf,
}

impl Store {
    /// How the fetch of a checkpoint is getting on.
    ///
    /// # Errors
    /// When the note cannot be read.
    pub fn fetch(&self, key: &Key) -> Result<Fetch, StoreError> {
        let path = self.note(key);
        match fs::read_to_string(&path) {
            Ok(note) => Ok(match note.strip_prefix(FAILED) {
                Some(why) => Fetch::Failed(why.chars().take(LONGEST).collect()),
                None => Fetch::Running,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Fetch::None),
            Err(error) => Err(StoreError::disk(path.display(), error)),
        }
    }

    /// Says that a fetch is under way.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn begin_fetch(&self, key: &Key) -> Result<Fetching, StoreError> {
        let fetching = Fetching {
            path: self.note(key),
        };
        fetching.begin()?;
        Ok(fetching)
    }

    fn note(&self, key: &Key) -> PathBuf {
        self.root.join(DIRECTORY).join(key.as_str())
    }
}

impl Fetching {
    /// Says that an attempt is under way.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn begin(&self) -> Result<(), StoreError> {
        self.write("")
    }

    /// Says why an attempt failed, until the next one begins.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn fail(&self, why: &str) -> Result<(), StoreError> {
        self.write(&format!("{FAILED}{why}"))
    }

    /// Writes the note as a whole: the runtime may read it at any time.
    fn write(&self, note: &str) -> Result<(), StoreError> {
        let unfinished = self.path.with_extension("new");
        fs::write(&unfinished, note)
            .and_then(|()| fs::rename(&unfinished, &self.path))
            .map_err(|error| StoreError::disk(self.path.display(), error))
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        // The next agent deletes a note that stays.
        let _ = fs::remove_file(&self.path);
    }
}
