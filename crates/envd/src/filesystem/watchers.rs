//! Watches for callers that poll.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_protocol::filesystem::FilesystemEvent;
use tokio::sync::{mpsc, oneshot};

use super::FileError;
use super::watch::{Asked, Told, Watch};
use crate::user::Users;

/// How many changes wait for a poll. Beyond them the kernel keeps some thousand more, and then the
/// watch fails, as something was lost.
const QUEUE: usize = 16_384;

/// The most watches of this kind: callers that never remove theirs must not fill the memory.
const MAX_WATCHERS: usize = 256;

/// How long a poll waits for what has just happened. It is there at once, unless a whole tree has
/// appeared or the disk is slow; then it comes with the next poll.
const PATIENCE: Duration = Duration::from_millis(500);

/// An id that names nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("watcher with id {0} not found")]
pub(super) struct UnknownWatcher(String);

/// All watches that are polled.
#[derive(Default)]
pub(super) struct Watchers(Mutex<HashMap<String, Watcher>>);

struct Watcher {
    told: mpsc::Receiver<Told>,
    questions: mpsc::Sender<Asked>,
    events: Vec<FilesystemEvent>,
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

    /// Takes what has happened since a watch was last asked, up to now. A failure comes after what
    /// was told before it, and then again each time.
    pub(super) async fn poll(
        &self,
        id: &str,
    ) -> Result<Result<Vec<FilesystemEvent>, String>, UnknownWatcher> {
        // Taking first what is there makes room for what is not.
        let questions = self.with(id, |watcher| {
            watcher.take();
            watcher.questions.clone()
        })?;
        let (question, answer) = oneshot::channel();
        let asking = async {
            // A watch that failed answers nothing.
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

    /// Ends a watch.
    pub(super) fn remove(&self, id: &str) -> Result<(), UnknownWatcher> {
        let removed = self.0.lock().remove(id);
        removed
            .map(drop)
            .ok_or_else(|| UnknownWatcher(id.to_owned()))
    }
}

impl Watcher {
    /// Takes what was told so far. What a poll leaves behind, because its caller has gone, is the
    /// next one's.
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

/// An id that nobody guesses.
fn id() -> String {
    let digits = crate::random::bytes::<10>();
    let digits = digits.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("w".to_owned()).chain(digits).collect()
}
