//! Ending a sandbox and clearing all that was its.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use shoal_core::driver::DriverError;
use shoal_core::id::SandboxId;

use super::{Shared, blocking, failed};
use crate::manifest::{self, Manifest};
use crate::rootfs;
use crate::saved::Place;

/// Each step succeeds when there is nothing for it to do, so that this clears what was never quite
/// made, and may be repeated after it failed.
pub(super) async fn destroy(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    clear(shared, id, None).await
}

/// The same for a sandbox that was given the slot `given` and may have died before it said so.
pub(super) async fn clear(
    shared: Arc<Shared>,
    id: SandboxId,
    given: Option<u32>,
) -> Result<(), DriverError> {
    end(&shared, &id, given).await?;
    let directory = shared.home.sandbox(id.as_str());
    let remove = move || {
        shared.disk.remove(id.as_str())?;
        Place::of_paused(&shared.disk, &id).remove(&shared.disk)?;
        // The manifest names the slot, so the directory goes last.
        remove_directory(&directory)
    };
    blocking(remove).await.map_err(failed("clear the files"))
}

/// Ends the processes of a sandbox and clears what only a run has: mounts, groups, the network
/// slot. Its files stay, and its manifest.
pub(super) async fn end_run(shared: &Arc<Shared>, id: &SandboxId) -> Result<(), DriverError> {
    end(shared, id, None).await
}

/// Begins to end the processes of a sandbox; whoever comes next waits for their end.
pub(super) async fn begin_end(shared: &Arc<Shared>, id: &SandboxId) -> Result<(), DriverError> {
    // From here on its end is no news.
    shared.live.lock().remove(id);
    let group = shared.group(id);
    blocking(move || group.signal().map(drop))
        .await
        .map_err(failed("end the processes"))
}

/// Ends the processes of a sandbox, and nothing else.
async fn end_processes(shared: &Arc<Shared>, id: &SandboxId) -> Result<(), DriverError> {
    // From here on its end is no news.
    shared.live.lock().remove(id);
    let group = shared.group(id);
    blocking(move || group.kill())
        .await
        .map_err(failed("end the processes"))
}

async fn end(shared: &Arc<Shared>, id: &SandboxId, given: Option<u32>) -> Result<(), DriverError> {
    end_processes(shared, id).await?;
    let directory = shared.home.sandbox(id.as_str());
    let manifest = Manifest::read(&directory);
    let slot = release_slot(shared, &directory, manifest.as_ref(), given);
    let run = {
        let (shared, id) = (shared.clone(), id.clone());
        blocking(move || clear_run(&shared, &id))
    };
    let (slot, run) = tokio::join!(slot, run);
    slot.map_err(failed("take the network slot away"))?;
    run.map_err(failed("clear a run"))
}

/// Takes the slot away, once: when a later step fails and all is repeated, or the server is killed
/// on the way, the index may be another sandbox's.
async fn release_slot(
    shared: &Shared,
    directory: &Path,
    manifest: Option<&Manifest>,
    given: Option<u32>,
) -> io::Result<()> {
    let Some(manifest) = manifest else {
        return match given {
            Some(slot) => shared.network.release(slot).await,
            None => Ok(()),
        };
    };
    if !manifest::disown_slot(directory)? {
        return Ok(());
    }
    let released = shared.network.release(manifest.slot).await;
    if released.is_err() {
        // What stays is taken away when this is repeated, or by the next start.
        let _ = manifest::hold_slot(directory);
    }
    released
}

fn clear_run(shared: &Shared, id: &SandboxId) -> io::Result<()> {
    let directory = shared.home.sandbox(id.as_str());
    rootfs::unmount_below(&directory)?;
    rootfs::unmount_below(&shared.disk.path(id.as_str()))?;
    shared
        .runtimes
        .iter()
        .try_for_each(|runtime| runtime.forget(id.as_str()))?;
    shared.group(id).remove()
}

/// Only what the driver put there is in it: nothing is mounted below any more.
fn remove_directory(directory: &Path) -> io::Result<()> {
    if !rootfs::mounts_below(directory)?.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "something is mounted below",
        ));
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
