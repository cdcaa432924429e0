//! Watches for callers that poll.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_protocol::filesystem::FilesystemEvent;
use tokio::sync::mpsc;

use super::FileError;
use super::watch::{Told, Watch};
use crate::user::Users;

/// How many changes wait for a poll. Beyond them the kernel keeps some thousand more, and then the
/// watch fails, as something was lost.
const QUEUE: usize = 16_384;

/// The most watches of this kind: callers that never remove theirs must not fill the memory.
const MAX_WATCHERS: usize = 256;

/// An id that names nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("watcher with id {0} not found")]
pub(super) struct UnknownWatcher(String);

/// All watches that are polled.
#[derive(Default)]
pub(super) struct Watchers(Mutex<HashMap<String, Watcher>>);

struct Watcher {
    told: mpsc::Receiver<Told>,
    failed: Option<FileError>,
}

impl Watchers {
    /// Adds a watch, and returns the id by which it is polled.
    pub(super) fn add(&self, watch: Watch, users: Arc<Users>) -> Result<String, FileError> {
        let mut watchers = self.0.lock();
        if watchers.len() >= MAX_WATCHERS {
            return Err(FileError::TooMany {
                what: "watchers",
                limit: MAX_WATCHERS,
                path: "this sandbox".into(),
            });
        }
        let (tx, told) = mpsc::channel(QUEUE);
        let id = id();
        let watcher = Watcher { told, failed: None };
        watchers.insert(id.clone(), watcher);
        tokio::spawn(watch.tell(users, tx));
        Ok(id)
    }

    /// Takes what a watch told since it was last asked. A failure comes after what was told before
    /// it, and then again each time.
    pub(super) fn poll(
        &self,
        id: &str,
    ) -> Result<Result<Vec<FilesystemEvent>, String>, UnknownWatcher> {
        let mut watchers = self.0.lock();
        let watcher = watchers.get_mut(id);
        let watcher = watcher.ok_or_else(|| UnknownWatcher(id.to_owned()))?;
        let mut events = Vec::new();
        while watcher.failed.is_none()
            && let Ok(told) = watcher.told.try_recv()
        {
            match told {
                Ok(event) => events.push(event),
                Err(error) => watcher.failed = Some(error),
            }
        }
        Ok(match &watcher.failed {
            Some(error) if events.is_empty() => Err(error.to_string()),
            _ => Ok(events),
        })
    }

    /// Ends a watch.
    pub(super) fn remove(&self, id: &str) -> Result<(), UnknownWatcher> {
        let removed = self.0.lock().remove(id);
        removed
            .map(drop)
            .ok_or_else(|| UnknownWatcher(id.to_owned()))
    }
}

/// An id that nobody guesses.
fn id() -> String {
    let mut bytes = [0_u8; 10];
    // Sixteen bytes at most come at once, or the call fails; then it is only guessable.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("w".to_owned()).chain(digits).collect()
}
