//! Destroying a sandbox.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use shoal_core::driver::{DriverError, PausedNetwork};
use shoal_core::id::SandboxId;
use shoal_node::blocking;
use shoal_node::exhausted::retry_exhausted;
use shoal_node::manifest::{self, Manifest};
use shoal_node::rootfs;
use shoal_node::saved::SavedDirectory;

use super::{Shared, failed};

/// Idempotent: each step succeeds when it has nothing to do. So this also removes a half-made
/// sandbox, and can be repeated after a failure.
pub(super) async fn destroy(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    shared.digests.stop(&id).await;
    end_run(&shared, &id, PausedNetwork::Removed).await?;
    let directory = shared.home.sandbox(id.as_str());
    let remove = move || {
        shared.disk.remove(id.as_str())?;
        SavedDirectory::of_paused(&shared.disk, &id).remove(&shared.disk)?;
        // The manifest names the slot, so the directory goes last.
        remove_directory(&directory)
    };
    blocking(remove).await.map_err(failed("clear the files"))
}

/// Signals the processes of a sandbox to end. A later call waits for their end.
pub(super) async fn begin_end(shared: &Arc<Shared>, id: &SandboxId) -> Result<(), DriverError> {
    // From here on its end is not reported.
    shared.live.lock().remove(id);
    let group = shared.group(id);
    blocking(move || retry_exhausted(|| group.signal()).map(drop))
        .await
        .map_err(failed("end the processes"))
}

/// Ends the processes of a sandbox. Removes nothing.
async fn end_processes(shared: &Arc<Shared>, id: &SandboxId) -> Result<(), DriverError> {
    // From here on its end is not reported.
    shared.live.lock().remove(id);
    let group = shared.group(id);
    blocking(move || retry_exhausted(|| group.kill()))
        .await
        .map_err(failed("end the processes"))
}

/// Ends the processes of a sandbox and removes what belongs to a run: mounts, cgroups and, unless the next run uses it
/// again, the network slot. Its files and its manifest stay.
pub(super) async fn end_run(
    shared: &Arc<Shared>,
    id: &SandboxId,
    network: PausedNetwork,
) -> Result<(), DriverError> {
    end_processes(shared, id).await?;
    if network == PausedNetwork::Removed {
        release_slot(shared, id)
            .await
            .map_err(failed("take the network slot away"))?;
    }
    let (shared, id) = (shared.clone(), id.clone());
    blocking(move || clear_run(&shared, &id))
        .await
        .map_err(failed("clear a run"))
}

/// Releases the slot exactly once. After a repeated call or a crash, the index may belong to another
/// sandbox.
pub(super) async fn release_slot(shared: &Arc<Shared>, id: &SandboxId) -> io::Result<()> {
    let directory = shared.home.sandbox(id.as_str());
    let held = move || -> io::Result<Option<u32>> {
        let manifest = Manifest::read(&directory)?;
        match manifest {
            Some(manifest) if manifest::disown_slot(&directory)? => Ok(Some(manifest.slot)),
            _ => Ok(None),
        }
    };
    if let Some(slot) = blocking(held).await? {
        shared.network.release(slot).await;
    }
    Ok(())
}

fn clear_run(shared: &Shared, id: &SandboxId) -> io::Result<()> {
    let directory = shared.home.sandbox(id.as_str());
    let root = shared.home.root(id.as_str());
    // Earlier versions mounted the root in the sandbox's directory.
    rootfs::unmount_below(&directory)?;
    rootfs::unmount_below(&shared.disk.path(id.as_str()))?;
    rootfs::unmount_below(&root)?;
    remove_directory(&root)?;
    shared
        .runtimes
        .iter()
        .try_for_each(|runtime| runtime.forget(id.as_str()))?;
    shared.group(id).remove()
}

/// Removes a directory of the driver. Fails while something is mounted below.
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
