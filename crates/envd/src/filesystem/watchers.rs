//! Watches that are polled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_protocol::filesystem::FilesystemEvent;
use tokio::sync::{mpsc, oneshot};

use super::FileError;
use super::watch::{FlushRequest, Watch, WatchResult};
use crate::user::Users;

/// Queue length of a polled watch. The kernel queues some thousand events more, and then the watch
/// fails because events are lost.
const QUEUE_LENGTH: usize = 16_384;

/// Limit of polled watches, because clients may never remove theirs.
const MAX_WATCHERS: usize = 256;

/// How long a poll waits for pending changes. They arrive at once, unless a large tree appeared or
/// the disk is slow; the next poll returns them then.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Unknown watcher id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("watcher with id {0} not found")]
pub(super) struct UnknownWatcher(String);

/// All polled watches.
#[derive(Default)]
pub(super) struct Watchers(Mutex<HashMap<String, Watcher>>);

struct Watcher {
    changes: mpsc::Receiver<WatchResult>,
    flushes: mpsc::Sender<FlushRequest>,
    events: Vec<FilesystemEvent>,
    failed: Option<FileError>,
}

impl Watchers {
    /// Adds a watch and returns its id.
    pub(super) fn add(&self, watch: Watch, users: Arc<Users>) -> Result<String, FileError> {
        let mut watchers = self.0.lock();
        if watchers.len() >= MAX_WATCHERS {
            return Err(FileError::TooMany {
                what: "watchers",
                limit: MAX_WATCHERS,
                path: "this sandbox".into(),
            });
        }
        let (tx, changes) = mpsc::channel(QUEUE_LENGTH);
        let id = id();
        let (flushes, flush_requests) = mpsc::channel(1);
        let watcher = Watcher {
            changes,
            flushes,
            events: Vec::new(),
            failed: None,
        };
        watchers.insert(id.clone(), watcher);
        tokio::spawn(watch.run(users, tx, flush_requests));
        Ok(id)
    }

    /// Takes all changes since the last poll. A failure is returned after the changes before it,
    /// and by every later poll.
    pub(super) async fn poll(
        &self,
        id: &str,
    ) -> Result<Result<Vec<FilesystemEvent>, String>, UnknownWatcher> {
        // Drain the queue first to make room for pending changes.
        let flushes = self.with(id, |watcher| {
            watcher.drain();
            watcher.flushes.clone()
        })?;
        let (flushed, done) = oneshot::channel();
        let flushing = async {
            // A failed watch does not answer.
            if flushes.send(flushed).await.is_ok() {
                let _ = done.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushing).await;
        self.with(id, |watcher| {
            watcher.drain();
            match &watcher.failed {
                Some(error) if watcher.events.is_empty() => Err(error.to_string()),
                _ => Ok(std::mem::take(&mut watcher.events)),
            }
        })
    }

    fn with<T>(
        &self,
        id: &str,
        access: impl FnOnce(&mut Watcher) -> T,
    ) -> Result<T, UnknownWatcher> {
        let mut watchers = self.0.lock();
        let watcher = watchers.get_mut(id);
        watcher
            .map(access)
            .ok_or_else(|| UnknownWatcher(id.to_owned()))
    }

    /// Removes a watch.
    pub(super) fn remove(&self, id: &str) -> Result<(), UnknownWatcher> {
        let removed = self.0.lock().remove(id);
        removed
            .map(drop)
            .ok_or_else(|| UnknownWatcher(id.to_owned()))
    }
}

impl Watcher {
    /// Drains the queue. Changes left by a poll whose caller disconnected are returned by the next
    /// one.
    fn drain(&mut self) {
        while self.failed.is_none()
            && self.events.len() < QUEUE_LENGTH
            && let Ok(changes) = self.changes.try_recv()
        {
            match changes {
                Ok(event) => self.events.push(event),
                Err(error) => self.failed = Some(error),
            }
        }
    }
}

/// A random id.
fn id() -> String {
    let digits = crate::random::bytes::<10>();
    let digits = digits.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("w".to_owned()).chain(digits).collect()
}
