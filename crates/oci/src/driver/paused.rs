//! Paused sandboxes: prepare a resume, and roll it back.

use std::io;
use std::sync::Arc;

use shoal_core::driver::{DriverError, PausedNetwork};
use shoal_core::id::SandboxId;
use shoal_node::blocking;
use shoal_node::disk::Disk;
use shoal_node::manifest;
use shoal_node::saved::SavedDirectory;

use super::{Shared, destroy, digests, failed};

/// Ends the run of a resumed sandbox and restores the files of its checkpoint.
pub(super) async fn rollback_resume(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    let place = SavedDirectory::of_paused(&shared.disk, &id);
    find(&place, &id).await?;
    end_run(shared.clone(), &id, PausedNetwork::Removed).await?;
    let (back, of) = (shared.clone(), id.clone());
    blocking(move || {
        take_back(&back.disk, &place, of.as_str()).map_err(failed("put the files back"))
    })
    .await?;
    digests::begin(&shared, &id);
    Ok(())
}

/// Checks that the sandbox has a checkpoint.
async fn find(place: &SavedDirectory, id: &SandboxId) -> Result<(), DriverError> {
    let directory = place.directory().to_owned();
    if blocking(move || Ok::<_, DriverError>(directory.exists())).await? {
        return Ok(());
    }
    Err(DriverError::NotFound(id.clone()))
}

/// Restores the files of the checkpoint, if a run may have changed them.
pub(super) fn take_back(disk: &Disk, place: &SavedDirectory, id: &str) -> io::Result<()> {
    let kept = place.files();
    if place.is_begun() && kept.exists() {
        disk.past_quota(place.directory(), || disk.put_back(&kept, id))?;
    }
    disk.past_quota(place.directory(), || place.mark_begun(false))
}

/// Keeps a copy of the files of a paused sandbox, for a rollback of its next run.
pub(super) fn guard(disk: &Disk, place: &SavedDirectory, id: &str) -> io::Result<()> {
    let kept = place.files();
    if kept.exists() {
        return Ok(());
    }
    disk.past_quota(place.directory(), || disk.keep(id, &kept))
}

/// Removes the remains of the last run of a paused sandbox, and prepares the next one.
pub(super) async fn prepare_resume(
    shared: Arc<Shared>,
    id: SandboxId,
    network: PausedNetwork,
) -> Result<(), DriverError> {
    let place = SavedDirectory::of_paused(&shared.disk, &id);
    find(&place, &id).await?;
    end_run(shared.clone(), &id, network).await?;
    blocking(move || guard(&shared.disk, &place, id.as_str()).map_err(failed("keep the files")))
        .await
}

/// Deletes the checkpoint of a resumed sandbox.
pub(super) async fn delete_checkpoint(
    shared: Arc<Shared>,
    id: SandboxId,
) -> Result<(), DriverError> {
    shared.digests.stop(&id).await;
    let place = SavedDirectory::of_paused(&shared.disk, &id);
    blocking(move || {
        place
            .remove(&shared.disk)
            .map_err(failed("remove what was saved"))
    })
    .await
}

/// Ends the processes of a sandbox and removes what belongs to a run. Its files and its directory
/// stay.
async fn end_run(
    shared: Arc<Shared>,
    id: &SandboxId,
    network: PausedNetwork,
) -> Result<(), DriverError> {
    destroy::end_run(&shared, id, network).await?;
    let directory = shared.home.sandbox(id.as_str());
    blocking(move || manifest::mark_held(&directory, false).map_err(failed("write the manifest")))
        .await
}
