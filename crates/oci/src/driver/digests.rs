//! Digests of paused memory. A pause does not wait for them: they are computed one after another, on one processor,
//! unless the sandbox resumes first.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_node::blocking;
use shoal_node::saved::{SavedDirectory, SavedManifest, Unreadable};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Shared;

/// The digests that are computed or wait for it.
#[derive(Default)]
pub(super) struct Digests {
    begun: Mutex<HashMap<SandboxId, Begun>>,
    turn: AsyncMutex<()>,
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

    /// Cancels all and waits for the end.
    pub(super) async fn stop_all(&self) {
        let all = std::mem::take(&mut *self.begun.lock());
        for begun in all.into_values() {
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
    let cancel = CancellationToken::new();
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
    let added = place.add_digests(|| match cancel.is_cancelled() {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    })?;
    // Every byte was just read.
    if let Some(stamp) = added.and_then(|manifest| manifest.stamp(place.directory())) {
        shared.note_verified(stamp);
    }
    Ok(())
}
