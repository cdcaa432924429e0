//! The file with the template catalogue, read at the first start and after every change.
//!
//! The current catalogue is in the store. The file and `POST /api/v1/config/templates` are two ways to
//! change it; the later change wins. A file that changed while no server ran is applied at the next
//! start.
//!
//! The path is polled a few times a second, not watched: it may be a symlink that is swapped (as
//! mounted configurations are), on a file system without watches, or missing.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shoal_core::catalogue::{BYTES_MAX, InvalidCatalogue};
use shoal_core::clock::Timestamp;
use shoal_engine::{CatalogueError, Engine};
use tokio::time::{MissedTickBehavior, interval};

/// The polling interval. A change applies when it was seen twice, so that a partial file is not read:
/// an edit applies within twice this time.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The file and its last read state.
#[derive(Debug)]
pub(crate) struct TemplatesFile {
    path: PathBuf,
    read: Option<Stamp>,
}

/// Distinguishes two states of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Nanoseconds.
    changed: i128,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let nanos = i128::from(metadata.mtime()) * 1_000_000_000;
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: nanos + i128::from(metadata.mtime_nsec()),
        }
    }

    /// Whether it changed after `moment`.
    fn is_after(&self, moment: Timestamp) -> bool {
        self.changed > i128::from(moment.unix_millis()) * 1_000_000
    }
}

impl TemplatesFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read: None }
    }

    /// Applies the file if there never was a catalogue, or if it changed after the current one.
    pub(crate) async fn load(&mut self, engine: &Engine) {
        let Some(stamp) = self.stamp().await else {
            return;
        };
        self.read = Some(stamp);
        let in_force = engine.catalogue();
        if in_force.updated_at.is_none_or(|at| stamp.is_after(at)) {
            self.take(engine).await;
        }
    }

    /// Applies every change of the file. Never ends.
    pub(crate) async fn follow(mut self, engine: Engine) {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = self.read;
        loop {
            look.tick().await;
            let now = self.stamp().await;
            let news = now.is_some() && now != self.read;
            if news && now == before {
                self.read = now;
                self.take(&engine).await;
            }
            before = now;
        }
    }

    /// The state of the file; none if it is missing.
    async fn stamp(&self) -> Option<Stamp> {
        let metadata = tokio::fs::metadata(&self.path).await.ok()?;
        Some(Stamp::of(&metadata))
    }

    async fn take(&self, engine: &Engine) {
        let path = self.path.clone();
        let text = tokio::task::spawn_blocking(move || read(&path)).await;
        let text = text.unwrap_or_else(|error| Err(io::Error::other(error)));
        let taken = match text {
            Ok(text) => {
                let replaced = engine.replace_catalogue(&text, None).await;
                replaced.map_err(|error| error.to_string())
            }
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        let file = self.path.display();
        match taken {
            Ok(in_force) => {
                tracing::info!(%file, version = in_force.version, "applied the template catalogue");
                for warning in in_force.catalogue.lint() {
                    tracing::warn!(%file, "{warning}");
                }
            }
            Err(error) => {
                tracing::error!(%file, error, "refused the template catalogue; the current one stays in force");
                engine.note_refused_edit(&file.to_string(), &error);
            }
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than the limit, to detect a longer file.
    File::open(path)?
        .take(BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)?;
    if text.len() > BYTES_MAX {
        let error = CatalogueError::Invalid(InvalidCatalogue::TooLarge(text.len()));
        return Err(io::Error::other(error));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use shoal_engine::EngineParts;
    use shoal_engine::test_util::{self, ManualClock};

    use super::*;

    #[tokio::test]
    async fn a_file_that_is_replaced_or_written_anew_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("templates.json");
        let file = TemplatesFile::new(path.clone());
        assert_eq!(file.stamp().await, None);
        std::fs::write(&path, "[]").unwrap();
        let first = file.stamp().await.unwrap();
        assert_eq!(file.stamp().await, Some(first));
        assert!(first.is_after(Timestamp::from_unix_seconds(0)));
        assert!(!first.is_after(Timestamp::from_unix_seconds(1 << 40)));
        let other = directory.path().join("other");
        std::fs::write(&other, "[]").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_ne!(file.stamp().await, Some(first));
    }

    #[tokio::test]
    async fn a_first_start_takes_the_file_and_a_later_one_what_is_newer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("templates.json");
        let entry =
            |name: &str| format!(r#"[{{"name": "{name}", "image": "i:1", "description": "d"}}]"#);
        std::fs::write(&path, entry("of-the-file")).unwrap();
        let clock = ManualClock::new();
        // Every later catalogue is newer than the file.
        clock.advance_to(Timestamp::from_unix_seconds(1 << 40));
        let start = async || {
            let engine = test_util::open(EngineParts {
                clock: clock.clone(),
                ..test_util::parts(directory.path())
            });
            let engine = engine.await;
            TemplatesFile::new(path.clone()).load(&engine).await;
            engine
        };
        let there = |engine: &Engine| {
            let in_force = engine.catalogue();
            let entries = in_force.catalogue.entries();
            let names: Vec<String> = entries.iter().map(|e| e.name.to_string()).collect();
            (in_force.version, names.join(" "))
        };
        let engine = start().await;
        assert_eq!(there(&engine), (1, "of-the-file".to_owned()));
        engine
            .replace_catalogue(&entry("of-the-api"), None)
            .await
            .unwrap();
        assert_eq!(there(&start().await), (2, "of-the-api".to_owned()));
        // It was kept: the file need not be there any more.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(there(&start().await), (2, "of-the-api".to_owned()));
    }

    #[test]
    fn too_much_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("templates.json");
        std::fs::write(&path, " ".repeat(BYTES_MAX + 5)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("at most"));
        std::fs::write(&path, " ".repeat(BYTES_MAX)).unwrap();
        assert_eq!(read(&path).unwrap().len(), BYTES_MAX);
    }
}
