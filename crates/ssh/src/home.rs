//! The home directory of an account as a place of a session's files.
//!
//! SFTP has no events, so the directory is polled: a file whose size, time or permissions have changed is read. Times have
//! whole seconds, so a file that has just changed is read again until a later change is sure to show. What begins with a dot directly in the home is the account's own (keys, settings, history), except `.gitignore`.

mod apply;
mod scan;
mod table;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::ports::inside::home::{
    Applied, Found, HomeChange, HomeEvent, HomeEvents, HomeFiles,
};
use shoal_core::ports::inside::{FileContents, InsideError};
use shoal_core::session::path::SessionPath;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::scan::Scan;
use self::table::{Event, Table};
use self::walk::{PathError, Walk};
use crate::client::pieces;
use crate::link::{Link, Main};

/// How many requests about different files are under way at the same time.
const PARALLEL: usize = 8;

/// How long the directory rests between two looks.
const REST: Duration = Duration::from_secs(1);

/// How many times as long as a look it rests, and the longest rest.
const SHARE: u32 = 10;
const LONGEST_REST: Duration = Duration::from_secs(30);

/// A home directory.
pub(crate) struct Home(Arc<Inner>);

struct Inner {
    link: Arc<Link>,
    /// The directory below the home.
    directory: String,
    table: Mutex<Table>,
    /// The number of the latest flush.
    flush: AtomicU64,
    more: Notify,
    watching: Mutex<Option<mpsc::UnboundedSender<Event>>>,
}

/// Ends a watch with its reader.
struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Home {
    pub(crate) fn new(link: Arc<Link>, directory: &str) -> Self {
        Self(Arc::new(Inner {
            link,
            directory: directory.trim_matches('/').to_owned(),
            table: Mutex::default(),
            flush: AtomicU64::new(0),
            more: Notify::new(),
            watching: Mutex::default(),
        }))
    }
}

impl Inner {
    /// The connection, and the path of the directory.
    async fn main(&self) -> Result<(Arc<Main>, String), InsideError> {
        let main = self.link.main().await?;
        let root = match self.directory.as_str() {
            "" => main.home.clone(),
            directory => format!("{}/{directory}", main.home),
        };
        Ok((main, root))
    }

    fn failed(&self, error: &PathError) -> InsideError {
        match error {
            PathError::Missing(path) => InsideError::NotFound(format!("nothing is at {path}")),
            PathError::InTheWay(why) => InsideError::Invalid(why.clone()),
            PathError::Sftp(path, error) => error.at(path, || self.link.lost().into()),
        }
    }

    /// Polls, and reports changes.
    async fn follow(self: Arc<Self>, file_max: u64, events: mpsc::UnboundedSender<Event>) {
        let mut told = None;
        loop {
            let flush = self.flush.load(Ordering::Acquire);
            let begun = Instant::now();
            let looked = match self.main().await {
                Ok((main, root)) => Scan::run(&self, &main, &root, file_max, &events).await,
                Err(error) => Err(error),
            };
            if let Err(error) = looked {
                // The reader may have gone.
                let _ = events.send(Event(u64::MAX, Err(error)));
                return;
            }
            if told.replace(flush) != Some(flush) {
                let settled = HomeEvent::Settled(flush);
                let _ = events.send(Event(u64::MAX, Ok(settled)));
            }
            let rest = (begun.elapsed() * SHARE).clamp(REST, LONGEST_REST);
            tokio::select! {
                () = sleep(rest) => {}
                () = self.more.notified() => {}
                () = events.closed() => return,
            }
        }
    }
}

impl HomeFiles for Home {
    fn watch(&self, file_max: u64) -> BoxFuture<'_, Result<HomeEvents, InsideError>> {
        Box::pin(async move {
            let inner = self.0.clone();
            let (events, told) = mpsc::unbounded_channel();
            inner.flush.store(0, Ordering::Release);
            *inner.table.lock() = Table::default();
            if let Some(former) = inner.watching.lock().replace(events.clone()) {
                let replaced = InsideError::Refused("another watch has begun".to_owned());
                let _ = former.send(Event(u64::MAX, Err(replaced)));
            }
            let watching = Watching(tokio::spawn(inner.clone().follow(file_max, events)));
            let next = async |(mut told, inner, watching): (
                mpsc::UnboundedReceiver<Event>,
                Arc<Inner>,
                Watching,
            )| {
                loop {
                    let Event(number, event) = told.recv().await?;
                    // The state after a change is known already.
                    let old = event
                        .as_ref()
                        .is_ok_and(|event| inner.table.lock().is_outdated(number, event));
                    if !old {
                        return Some((event, (told, inner, watching)));
                    }
                }
            };
            Ok(stream::unfold((told, inner, watching), next).boxed())
        })
    }

    fn apply(&self, changes: Vec<HomeChange>) -> BoxFuture<'_, Result<Vec<Applied>, InsideError>> {
        Box::pin(async move { self.0.apply(changes).await })
    }

    fn look(&self, paths: Vec<SessionPath>) -> BoxFuture<'_, Result<Vec<Found>, InsideError>> {
        Box::pin(async move {
            let (main, root) = self.0.main().await?;
            let walk = Walk::new(&main.sftp, &root);
            let found = paths.into_iter().map(|path| self.0.find(&walk, path));
            let found: Vec<_> = stream::iter(found).buffered(PARALLEL).collect().await;
            found.into_iter().collect()
        })
    }

    fn read(&self, path: SessionPath) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        Box::pin(async move {
            let (main, root) = self.0.main().await?;
            let walk = Walk::new(&main.sftp, &root);
            let opened = walk.open_to_read(&path).await;
            let (file, entry) = opened.map_err(|error| self.0.failed(&error))?;
            Ok(FileContents {
                size: Some(entry.stamp.size),
                contents: pieces(main, file),
            })
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<u64, InsideError>> {
        Box::pin(async move {
            let watching = self.0.watching.lock().clone();
            if watching.is_none_or(|events| events.is_closed()) {
                return Err(InsideError::Invalid("nothing watches".to_owned()));
            }
            let flush = self.0.flush.fetch_add(1, Ordering::AcqRel) + 1;
            self.0.more.notify_one();
            Ok(flush)
        })
    }
}
