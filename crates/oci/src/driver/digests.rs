//! Digests of paused memory. A pause does not wait for them: they are computed one after another, on one processor,
//! unless the sandbox resumes first. If that fails, the next server tries again.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_node::blocking;
use shoal_node::saved::{SavedDirectory, SavedManifest, Unreadable};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Shared;

/// How long the end of the server waits for them. Afterwards a data directory can be copied, and an earlier version of this
/// program can read it.
const FINISH: Duration = Duration::from_secs(10);

/// The digests that are computed or wait for it.
#[derive(Default)]
pub(super) struct Digests {
    begun: Mutex<HashMap<SandboxId, Begun>>,
    turn: AsyncMutex<()>,
    tasks: TaskTracker,
    /// Cancels all, also those that begin later.
    ending: CancellationToken,
}

struct Begun {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Digests {
    /// Begins `compute` for a sandbox, on a thread that may block, unless it has begun.
    fn begin(
        self: &Arc<Self>,
        id: &SandboxId,
        compute: impl FnOnce(&CancellationToken) -> Result<(), Unreadable> + Send + 'static,
    ) {
        let cancel = self.ending.child_token();
        // Held until it is in the table: the task removes itself.
        let mut all = self.begun.lock();
        all.entry(id.clone()).or_insert_with(|| {
            let run = run(self.clone(), id.clone(), cancel.clone(), compute);
            let task = self.tasks.spawn(run);
            Begun { cancel, task }
        });
    }

    /// Cancels those of a sandbox and waits for the end. Call it before its checkpoint is used or replaced.
    pub(super) async fn stop(&self, id: &SandboxId) {
        let begun = self.begun.lock().remove(id);
        if let Some(begun) = begun {
            begun.cancel.cancel();
            // A panic ended it, too. It was reported when it happened.
            let _ = begun.task.await;
        }
    }

    /// Waits until all are computed, for a while. Then cancels the rest, and waits for the end.
    pub(super) async fn finish(&self) {
        self.tasks.close();
        if tokio::time::timeout(FINISH, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                "some paused sandboxes have no digests yet: the next start computes them"
            );
        }
        self.ending.cancel();
        self.tasks.wait().await;
    }
}

async fn run(
    digests: Arc<Digests>,
    id: SandboxId,
    cancel: CancellationToken,
    compute: impl FnOnce(&CancellationToken) -> Result<(), Unreadable> + Send + 'static,
) {
    let turn = cancel.run_until_cancelled(digests.turn.lock()).await;
    if turn.is_some() {
        let asked = cancel.clone();
        let computed = blocking(move || Ok::<_, io::Error>(compute(&asked)));
        match computed.await.unwrap_or_else(|error| Err(error.into())) {
            Ok(()) => {}
            Err(_) if cancel.is_cancelled() => {}
            Err(error) => {
                tracing::warn!(sandbox.id = %id, error = %Chain(&error), "the memory of a paused sandbox has no digests");
            }
        }
    }
    // Whoever cancelled it has removed it, and another may have begun.
    if !cancel.is_cancelled() {
        digests.begun.lock().remove(&id);
    }
}

/// Begins to compute the digests of a paused sandbox, if they are missing.
pub(super) fn begin(shared: &Arc<Shared>, id: &SandboxId) {
    let (of, computing) = (id.clone(), shared.clone());
    let compute = move |cancel: &CancellationToken| compute(&computing, &of, cancel);
    shared.digests.begin(id, compute);
}

/// Begins for all paused sandboxes whose digests the previous server did not finish.
pub(super) async fn begin_all(shared: &Arc<Shared>) -> io::Result<()> {
    let searched = shared.clone();
    for id in blocking(move || lacking(&searched)).await? {
        begin(shared, &id);
    }
    Ok(())
}

fn lacking(shared: &Shared) -> io::Result<Vec<SandboxId>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(shared.disk.paused())? {
        let entry = entry?;
        // An unreadable manifest is reported when the sandbox resumes.
        let complete = |manifest: SavedManifest| manifest.has_digests();
        if let Ok(id) = entry.file_name().to_string_lossy().parse()
            && !SavedManifest::read(&entry.path()).map_or(true, complete)
        {
            found.push(id);
        }
    }
    Ok(found)
}

fn compute(shared: &Shared, id: &SandboxId, cancel: &CancellationToken) -> Result<(), Unreadable> {
    let place = SavedDirectory::of_paused(&shared.disk, id);
    let stamp = place.add_digests(|| match cancel.is_cancelled() {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    })?;
    // Every byte was just read.
    if let Some(stamp) = stamp {
        shared.note_verified(stamp);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;

    fn id(text: &str) -> SandboxId {
        text.parse().unwrap()
    }

    /// Runs until it is cancelled; says when it has begun and when it ends.
    fn until_cancelled(
        said: UnboundedSender<&'static str>,
    ) -> impl FnOnce(&CancellationToken) -> Result<(), Unreadable> + Send + 'static {
        move |cancel| {
            said.send("begun").unwrap();
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            said.send("ended").unwrap();
            Err(Unreadable::Missing)
        }
    }

    #[tokio::test]
    async fn a_stop_waits_for_the_end_and_another_may_begin() {
        let digests = Arc::new(Digests::default());
        let (said, mut heard) = unbounded_channel();
        digests.begin(&id("ia"), until_cancelled(said.clone()));
        digests.begin(&id("ia"), |_| panic!("it has begun"));
        assert_eq!(heard.recv().await, Some("begun"));
        // It waits for its turn, and never gets it.
        digests.begin(&id("ib"), |_| panic!("it was cancelled"));
        digests.stop(&id("ib")).await;
        digests.stop(&id("ia")).await;
        assert_eq!(heard.try_recv().unwrap(), "ended");
        assert!(digests.begun.lock().is_empty());
        digests.begin(&id("ia"), move |_| {
            said.send("again").unwrap();
            Ok(())
        });
        digests.finish().await;
        assert_eq!(heard.try_recv().unwrap(), "again");
        assert!(digests.begun.lock().is_empty());
    }

    #[tokio::test]
    async fn nothing_begins_after_the_end() {
        let digests = Arc::new(Digests::default());
        digests.finish().await;
        digests.begin(&id("ia"), |_| panic!("the disk is unmounted"));
        digests.tasks.wait().await;
    }
}
