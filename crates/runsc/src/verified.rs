//! The verified files of a checkpoint, so that many pods of one checkpoint read them once.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use shoal_checkpoint::{CheckpointId, Digested, Manifest, Store, StoreError};

/// Verifies the files of a checkpoint. One process at a time reads them; the others wait for its result.
pub(crate) fn verify(
    state: &Path,
    store: &Store,
    manifest: &Manifest,
    id: &CheckpointId,
) -> Result<(), StoreError> {
    let directory = state.join("verified");
    let known_path = directory.join(format!("{}.json", id.key()));
    let locked = lock(&directory, &format!("{}.lock", id.key()));
    let _lock = locked.map_err(|error| StoreError::Disk {
        what: directory.display().to_string(),
        error,
    })?;
    let known: Vec<Digested> = fs::read(&known_path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let now = store.verify(manifest, id.key(), &known)?;
    if now != known
        && let Ok(bytes) = serde_json::to_vec(&now)
    {
        // Without it the next pod reads the files again.
        let _ = fs::write(&known_path, bytes);
    }
    Ok(())
}

/// A lock that ends with the process at the latest.
fn lock(directory: &Path, name: &str) -> io::Result<File> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(directory.join(name))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
