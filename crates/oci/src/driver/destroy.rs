//! Ending a sandbox and clearing all that was its.

use std::fs;
use std::io;
use std::sync::Arc;

use shoal_core::driver::DriverError;
use shoal_core::id::SandboxId;

use super::{Shared, blocking, failed};
use crate::manifest::Manifest;
use crate::rootfs;

/// Each step succeeds when there is nothing for it to do, so that this clears what was never quite
/// made, and may be repeated after it failed.
pub(super) async fn destroy(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    // From here on its end is no news.
    let known = shared.live.lock().remove(&id);
    let directory = shared.home.sandbox(id.as_str());
    let manifest = known.or_else(|| Manifest::read(&directory));
    let group = shared.group(&id);
    blocking(move || group.kill())
        .await
        .map_err(failed("end the processes"))?;
    let slot = async {
        match &manifest {
            Some(manifest) => shared.network.release(manifest.slot).await,
            None => Ok(()),
        }
    };
    let files = {
        let (shared, id) = (shared.clone(), id.clone());
        blocking(move || clear_files(&shared, &id))
    };
    let (slot, files) = tokio::join!(slot, files);
    slot.map_err(failed("take the network slot away"))?;
    files.map_err(failed("clear the files"))?;
    // The manifest names the slot, so the directory goes last.
    blocking(move || remove_directory(&directory))
        .await
        .map_err(failed("clear the directory"))
}

fn clear_files(shared: &Shared, id: &SandboxId) -> io::Result<()> {
    let directory = shared.home.sandbox(id.as_str());
    rootfs::unmount_below(&directory)?;
    rootfs::unmount_below(&shared.disk.path(id.as_str()))?;
    shared.disk.remove(id.as_str())?;
    shared
        .runtimes
        .iter()
        .try_for_each(|runtime| runtime.forget(id.as_str()))?;
    shared.group(id).remove()
}

/// Only what the driver put there is in it: nothing is mounted below any more.
fn remove_directory(directory: &std::path::Path) -> io::Result<()> {
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
