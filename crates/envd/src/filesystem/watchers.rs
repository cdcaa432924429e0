//! Watches that are polled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_protocol::filesystem::FilesystemEvent;
use tokio::sync::{mpsc, oneshot};

use super::FileError;
use super::watch::{Asked, Told, Watch};
use crate::user::Users;

/// Queue length of a polled watch. The kernel queues some thousand events more, and then the watch
/// fails because events are lost.
const QUEUE: usize = 16_384;

/// Limit of polled watches, because clients may never remove theirs.
const MAX_WATCHERS: usize = 256;

/// How long a poll waits for pending changes. They arrive at once, unless a large tree appeared or
/// the disk is slow; the next poll returns them then.
const PATIENCE: Duration = Duration::from_millis(500);

/// Unknown watcher id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("watcher with id {0} not found")]
pub(super) struct UnknownWatcher(String);

/// All polled watches.
#[derive(Default)]
pub(super) struct Watchers(Mutex<HashMap<String, Watcher>>);

struct Watcher {
    told: mpsc::Receiver<Told>,
    questions: mpsc::Sender<Asked>,
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
        let (tx, told) = mpsc::channel(QUEUE);
        let id = id();
        let (questions, asked) = mpsc::channel(1);
        let watcher = Watcher {
            told,
            questions,
            events: Vec::new(),
            failed: None,
        };
        watchers.insert(id.clone(), watcher);
        tokio::spawn(watch.tell(users, tx, asked));
        Ok(id)
    }

    /// Takes all changes since the last poll. A failure is returned after the changes before it,
    /// and by every later poll.
    pub(super) async fn poll(
        &self,
        id: &str,
    ) -> Result<Result<Vec<FilesystemEvent>, String>, UnknownWatcher> {
        // Drain the queue first to make room for pending changes.
        let questions = self.with(id, |watcher| {
            watcher.take();
            watcher.questions.clone()
        })?;
        let (question, answer) = oneshot::channel();
        let asking = async {
            // A failed watch does not answer.
            if questions.send(question).await.is_ok() {
                let _ = answer.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, asking).await;
        self.with(id, |watcher| {
            watcher.take();
            match &watcher.failed {
                Some(error) if watcher.events.is_empty() => Err(error.to_string()),
                _ => Ok(std::mem::take(&mut watcher.events)),
            }
        })
    }

    fn with<T>(&self, id: &str, look: impl FnOnce(&mut Watcher) -> T) -> Result<T, UnknownWatcher> {
        let mut watchers = self.0.lock();
        let watcher = watchers.get_mut(id);
        watcher
            .map(look)
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
    fn take(&mut self) {
        while self.failed.is_none()
            && self.events.len() < QUEUE
            && let Ok(told) = self.told.try_recv()
        {
            match told {
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
