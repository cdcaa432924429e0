//! A sandbox that rests: made ready to go on, and put back when it does not.

use std::io;
use std::sync::Arc;

use shoal_core::driver::DriverError;
use shoal_core::id::SandboxId;
use shoal_node::blocking;
use shoal_node::disk::Disk;
use shoal_node::manifest;
use shoal_node::saved::Place;

use super::{Shared, destroy, failed};

/// Ends the run of a sandbox that was paused, and puts back what it had when it was.
pub(super) async fn back_to_pause(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    let place = Place::of_paused(&shared.disk, &id);
    find(&place, &id).await?;
    end_run(shared.clone(), &id).await?;
    blocking(move || {
        take_back(&shared.disk, &place, id.as_str()).map_err(failed("put the files back"))
    })
    .await
}

/// Checks that something was saved of the sandbox.
async fn find(place: &Place, id: &SandboxId) -> Result<(), DriverError> {
    let directory = place.directory().to_owned();
    if blocking(move || Ok::<_, DriverError>(directory.exists())).await? {
        return Ok(());
    }
    Err(DriverError::NotFound(id.clone()))
}

/// Puts the files of a paused sandbox back, if a run has begun to change them.
pub(super) fn take_back(disk: &Disk, place: &Place, id: &str) -> io::Result<()> {
    let kept = place.files();
    if place.is_begun() && kept.exists() {
        disk.put_back(&kept, id)?;
    }
    place.mark_begun(false)
}

/// Keeps the files of a paused sandbox, to be put back should its next run not succeed.
pub(super) fn guard(disk: &Disk, place: &Place, id: &str) -> io::Result<()> {
    let kept = place.files();
    if kept.exists() {
        return Ok(());
    }
    disk.keep(id, &kept)
}

/// Clears what the last run of a paused sandbox had, and makes ready what the next one needs.
pub(super) async fn prepare_resume(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    let place = Place::of_paused(&shared.disk, &id);
    find(&place, &id).await?;
    end_run(shared.clone(), &id).await?;
    blocking(move || guard(&shared.disk, &place, id.as_str()).map_err(failed("keep the files")))
        .await
}

/// Forgets what was saved of a sandbox that runs again.
pub(super) async fn discard_pause(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    let place = Place::of_paused(&shared.disk, &id);
    blocking(move || {
        place
            .remove(&shared.disk)
            .map_err(failed("remove what was saved"))
    })
    .await
}

/// Ends the processes of a sandbox and clears what only a run has; its files and its directory
/// stay.
async fn end_run(shared: Arc<Shared>, id: &SandboxId) -> Result<(), DriverError> {
    destroy::end_run(&shared, id).await?;
    let directory = shared.home.sandbox(id.as_str());
    blocking(move || manifest::mark_held(&directory, false).map_err(failed("write the manifest")))
        .await
}
