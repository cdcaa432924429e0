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

use super::Shared;

/// How long the end of the server waits for them. Afterwards a data directory can be copied, and an earlier version of this
/// program can read it.
const FINISH: Duration = Duration::from_secs(10);

/// The digests that are computed or wait for it.
#[derive(Default)]
pub(super) struct Digests {
    begun: Mutex<HashMap<SandboxId, Begun>>,
    turn: AsyncMutex<()>,
    /// Cancels all, also those that begin later.
    ending: CancellationToken,
}

struct Begun {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Digests {
    /// Cancels those of a sandbox and waits for the end. Call it before its checkpoint is used or replaced.
    pub(super) async fn stop(&self, id: &SandboxId) {
        let begun = self.begun.lock().remove(id);
        if let Some(begun) = begun {
            begun.stop().await;
        }
    }

    /// Waits until all are computed, for a while. Then cancels the rest, and waits for the end.
    pub(super) async fn finish(&self) {
        let mut all: Vec<_> = std::mem::take(&mut *self.begun.lock())
            .into_values()
            .collect();
        let computed = async {
            for begun in &mut all {
                let _ = (&mut begun.task).await;
            }
        };
        if tokio::time::timeout(FINISH, computed).await.is_err() {
            tracing::warn!(
                "some paused sandboxes have no digests yet: the next start computes them"
            );
        }
        self.ending.cancel();
        for begun in all.into_iter().filter(|begun| !begun.task.is_finished()) {
            begun.stop().await;
        }
    }
}

impl Begun {
    async fn stop(self) {
        self.cancel.cancel();
        // A panic ended it, too. It was reported when it happened.
        let _ = self.task.await;
    }
}

/// Begins to compute the digests of a paused sandbox, if they are missing.
pub(super) fn begin(shared: &Arc<Shared>, id: &SandboxId) {
    let cancel = shared.digests.ending.child_token();
    // Held until it is in the table: the task removes itself.
    let mut all = shared.digests.begun.lock();
    all.entry(id.clone()).or_insert_with(|| {
        let task = tokio::spawn(run(shared.clone(), id.clone(), cancel.clone()));
        Begun { cancel, task }
    });
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

async fn run(shared: Arc<Shared>, id: SandboxId, cancel: CancellationToken) {
    let turn = cancel.run_until_cancelled(shared.digests.turn.lock()).await;
    if turn.is_some() {
        let (computing, of, asked) = (shared.clone(), id.clone(), cancel.clone());
        let computed = blocking(move || {
            let computed = compute(&computing, &of, &asked);
            Ok::<_, io::Error>(computed)
        });
        match computed.await.unwrap_or_else(|error| Err(error.into())) {
            Ok(()) => {}
            Err(_) if cancel.is_cancelled() => {}
            Err(error) => {
                tracing::warn!(sandbox.id = %id, error = %Chain(&error), "the memory of a paused sandbox has no digests");
            }
        }
    }
    // Whoever cancelled it has removed it.
    if !cancel.is_cancelled() {
        shared.digests.begun.lock().remove(&id);
    }
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
