//! Carrying a snapshot to another installation, as one file: see [`crate::export`].

mod beside;
mod fits;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use shoal_core::driver::{DriverError, ExportRequest, ImportRequest, Imported};
use shoal_images::unpack::Limits;
use shoal_node::blocking;
use shoal_node::daemon::{ENVD_PATH, envd_layer};
use shoal_node::machine::Machine;
use shoal_node::rootfs::USERS;
use shoal_node::saved::{SavedDirectory, SavedManifest, Unreadable, open_named, open_plain};

use self::beside::Beside;
use self::fits::fits;
use super::{Shared, failed};
use crate::export::{Archive, ENVD, Entry, Head, Stop, Terms, receive, write_head, write_upper};

/// The longest file of a sandbox, its holes included. It is the limit of ext4. Holes use no space.
const FILE_MAX: u64 = 16 << 40;
/// The part of the disk that an import leaves free for running sandboxes, and its maximum.
const RESERVE_PART: u64 = 20;
const RESERVE_MAX: u64 = 1 << 30;

/// Writes a snapshot to a new file, whole or not at all. Returns its bytes.
pub(super) async fn export(shared: Arc<Shared>, order: ExportRequest) -> Result<u64, DriverError> {
    let (stop, _stop_on_drop) = shared.transfers.begin().await;
    // The snapshot cannot be removed meanwhile.
    let lock = shared.snapshot_lock(order.snapshot).read_owned().await;
    let work = move || {
        let _reading = lock;
        let place = SavedDirectory::of_snapshot(&shared.disk, order.snapshot);
        let manifest =
            SavedManifest::read(place.directory()).map_err(|unreadable| match unreadable {
                Unreadable::Missing => DriverError::SnapshotNotFound(order.snapshot),
                other => DriverError::Unusable(other.to_string()),
            })?;
        write(&shared, &place, &manifest, order, stop).map_err(failed("export the snapshot"))
    };
    blocking(work).await
}

fn write(
    shared: &Shared,
    place: &SavedDirectory,
    manifest: &SavedManifest,
    order: ExportRequest,
    stop: Stop,
) -> io::Result<u64> {
    let beside = Beside::new(&order.target)?;
    let mut archive = Archive::new(&beside.file, stop);
    let head = Head::new(order.note, &order.key);
    write_head(&mut archive, &head, manifest)?;
    let daemon = shared.envd_layers.join(&manifest.envd);
    let daemon = fs::read(daemon.join(ENVD_PATH.trim_start_matches('/')))?;
    archive.small(ENVD, &daemon)?;
    for file in &manifest.memory {
        let entry = Entry::file(&format!("memory/{}", file.name), file.bytes);
        archive.member(&entry, open_plain(&place.memory(), &file.name)?)?;
    }
    write_upper(&mut archive, &place.files().join("upper"))?;
    archive.finish(&order.key)?;
    beside.keep(&order.target)
}

/// Takes in the snapshot in a file, when it can run here.
pub(super) async fn import(
    shared: Arc<Shared>,
    order: ImportRequest,
) -> Result<Imported, DriverError> {
    let (stop, _stop_on_drop) = shared.transfers.begin().await;
    let work = move || {
        let place = SavedDirectory::of_snapshot(&shared.disk, order.snapshot);
        let new = place
            .prepare(&shared.disk)
            .map_err(failed("make a directory"))?;
        let taken = take_in(&shared, &order, &new, &place, &stop);
        if taken.is_err() {
            // The next start clears leftovers; the first error is returned.
            let _ = new.remove(&shared.disk);
        }
        taken
    };
    blocking(work).await
}

fn take_in(
    shared: &Shared,
    order: &ImportRequest,
    new: &SavedDirectory,
    place: &SavedDirectory,
    stop: &Stop,
) -> Result<Imported, DriverError> {
    let directory = new.directory();
    let unusable = |e: io::Error| {
        let path = order.source.display();
        DriverError::Unusable(format!("{path} cannot be read: {e}"))
    };
    let source = open_named(&order.source).map_err(unusable)?;
    let length = source.metadata().map_err(unusable)?.len();
    let terms = Terms {
        key: &order.key,
        trust: order.trust,
        limits: limits(directory, order.max_bytes).map_err(failed("measure the disk"))?,
        accept: &|manifest| can_run(shared, manifest),
        make_files: &|path| shared.disk.make_at(path),
        stop,
    };
    let received = receive(source, length, directory, &terms)?;
    let daemon = directory.join(ENVD);
    let layer = envd_layer(&shared.home.data, &daemon).map_err(failed("install the daemon"))?;
    if layer != received.manifest.envd {
        let damaged = "its daemon is damaged: its content";
        return Err(DriverError::Unusable(damaged.to_owned()));
    }
    let publish = || {
        fs::remove_file(daemon)?;
        new.write(&received.manifest)?;
        shared.disk.sync()?;
        stop.check()?;
        new.show(place)
    };
    publish().map_err(failed("keep the snapshot"))?;
    Ok(Imported {
        saved: received.manifest.saved,
        note: received.note,
    })
}

fn limits(directory: &Path, max_bytes: u64) -> io::Result<Limits> {
    let disk = rustix::fs::statvfs(directory)?;
    let size = disk.f_blocks.saturating_mul(disk.f_frsize);
    Ok(Limits {
        bytes: max_bytes,
        file_bytes: FILE_MAX,
        reserve_bytes: (size / RESERVE_PART).min(RESERVE_MAX),
        ..Limits::default()
    })
}

/// Checks that the layers are on this node and that the memory can be restored. Returns the number of
/// users of the sandbox.
fn can_run(shared: &Shared, manifest: &SavedManifest) -> Result<u32, DriverError> {
    if shared.layers.by_digest(&manifest.layers).is_none() {
        return Err(DriverError::ImageNotFound(manifest.image.clone()));
    }
    let runtimes: Vec<_> = shared.runtimes.iter().map(|known| &known.info).collect();
    fits(&runtimes, &Machine::this(), manifest)?;
    let mut runtimes = shared.runtimes.iter();
    let runtime = runtimes.find(|known| known.info.name == manifest.saved.runtime);
    let has_namespace = runtime.is_some_and(|runtime| runtime.kind.has_user_namespace());
    // A kernel of the sandbox's own knows every user that there is.
    Ok(if has_namespace { USERS } else { u32::MAX })
}
