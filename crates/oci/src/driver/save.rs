//! Saving a sandbox: to rest, or for others to start from.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_core::driver::{AfterSnapshot, DriverError};
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::resources::Mib;
use shoal_core::snapshot::{Contents, Saved};
use shoal_node::blocking;
use shoal_node::exhausted::retry_exhausted;
use shoal_node::manifest::{self, Manifest};
use shoal_node::saved::{self, Parts, Place};

use super::create::CPU_AT_START;
use super::{Shared, destroy, failed, paused};
use crate::runtime::Runtime;

/// Saves a sandbox and ends its run.
pub(super) async fn pause(
    shared: Arc<Shared>,
    id: SandboxId,
    contents: Contents,
) -> Result<Saved, DriverError> {
    let place = Place::of_paused(&shared.disk, &id);
    let alive = shared.live.lock().contains_key(&id);
    if !alive {
        let directory = place.directory().to_owned();
        let known = blocking(move || Ok::<_, DriverError>(saved::Manifest::read(&directory)));
        match known.await? {
            Ok(known) => {
                paused::rollback_resume(shared, id).await?;
                return Ok(known.saved);
            }
            Err(saved::Unreadable::Disk(error)) => {
                return Err(failed("read what was saved")(error));
            }
            Err(_) => {}
        }
    }
    let save = Save::new(&shared, &id, contents)?;
    let disk = shared.clone();
    let saving = move || {
        // What it was resumed from, if that could not be removed when it was.
        place
            .remove(&disk.disk)
            .map_err(failed("remove what was saved"))?;
        std::thread::scope(|scope| {
            // Without it what is saved would be nobody's after a failure of the machine.
            let known = scope.spawn(|| Manifest::sync(&save.directory));
            let kept = save.to_rest(&place);
            match known.join() {
                Ok(Err(error)) => {
                    tracing::error!(sandbox.id = %save.manifest.id, %error, "a pause may be lost if the machine fails now");
                }
                Ok(Ok(())) => {}
                Err(panic) => std::panic::resume_unwind(panic),
            }
            kept
        })
    };
    let manifest = blocking(saving).await?;
    // From here on it is saved, whatever comes. It is held still until its processes have ended, which
    // the next run is made ready after, as is what else this one had.
    if let Err(error) = destroy::begin_end(&shared, &id).await {
        tracing::error!(sandbox.id = %id, %error, "the processes of a paused sandbox have not ended: they are held still until it is resumed or ended");
    }
    Ok(manifest.saved)
}

/// Saves a sandbox beside it, which goes on then or stays held still.
pub(super) async fn snapshot(
    shared: Arc<Shared>,
    id: SandboxId,
    snapshot: SnapshotId,
    contents: Contents,
    after: AfterSnapshot,
) -> Result<Saved, DriverError> {
    let save = Save::new(&shared, &id, contents)?;
    let place = Place::of_snapshot(&shared.disk, snapshot);
    let manifest = blocking(move || save.beside(&place, after)).await?;
    Ok(manifest.saved)
}

/// Lets a sandbox go on that a snapshot has left held still.
pub(super) async fn thaw_source(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    let save = Save::new(&shared, &id, Contents::Filesystem)?;
    blocking(move || save.release().map_err(failed("let the sandbox go on"))).await
}

/// The snapshots on this node.
pub(super) async fn snapshots(shared: Arc<Shared>) -> Result<Vec<SnapshotId>, DriverError> {
    let list = move || {
        let entries = fs::read_dir(shared.disk.snapshots())?;
        let names: io::Result<Vec<String>> = entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect();
        Ok(names?.iter().filter_map(|name| name.parse().ok()).collect())
    };
    blocking(list).await.map_err(failed("search"))
}

/// Removes a snapshot.
pub(super) async fn remove_snapshot(
    shared: Arc<Shared>,
    id: SnapshotId,
) -> Result<(), DriverError> {
    let lock = shared.snapshot_lock(id);
    // Those that start from it have opened what they read when this goes on.
    let writing = lock.write_owned().await;
    let place = Place::of_snapshot(&shared.disk, id);
    let hidden = place.clone();
    blocking(move || hidden.hide().map_err(failed("remove the snapshot"))).await?;
    drop(writing);
    shared.snapshots.lock().remove(&id);
    let remove = move || {
        place
            .remove(&shared.disk)
            .map_err(failed("remove the snapshot"))
    };
    blocking(remove).await
}

/// One saving of a sandbox that runs.
struct Save {
    shared: Arc<Shared>,
    runtime: Runtime,
    contents: Contents,
    manifest: Manifest,
    directory: PathBuf,
}

impl Save {
    fn new(shared: &Arc<Shared>, id: &SandboxId, contents: Contents) -> Result<Self, DriverError> {
        let manifest = shared.live.lock().get(id).cloned();
        let manifest = manifest.ok_or_else(|| DriverError::NotFound(id.clone()))?;
        let runtime = shared
            .runtimes
            .iter()
            .find(|runtime| runtime.info.name == manifest.runtime)
            .ok_or_else(|| DriverError::RuntimeNotFound {
                asked: manifest.runtime.clone(),
                available: super::names(&shared.runtimes),
            })?;
        if contents.has_memory() && !runtime.info.memory_snapshot {
            return Err(DriverError::Unsupported {
                runtime: manifest.runtime.clone(),
                operation: "keep memory",
                instead: "the files alone (memory: false), or a sandbox of runtime runsc",
            });
        }
        Ok(Self {
            shared: shared.clone(),
            runtime: runtime.clone(),
            contents,
            directory: shared.home.sandbox(id.as_str()),
            manifest,
        })
    }

    /// Saves and leaves the sandbox held still, to be ended.
    fn to_rest(&self, place: &Place) -> Result<saved::Manifest, DriverError> {
        let held = self.hold()?;
        let kept = self.write(place, Then::Rest, held.since);
        if kept.is_err() {
            held.release();
        }
        kept
    }

    /// Saves with a copy of the files. The sandbox goes on as soon as that is taken, unless it is to
    /// stay still and all was saved.
    fn beside(&self, place: &Place, after: AfterSnapshot) -> Result<saved::Manifest, DriverError> {
        let held = self.hold()?;
        let then = match after {
            AfterSnapshot::Resume => Then::GoOn(&held),
            AfterSnapshot::KeepFrozen => Then::StayStill,
        };
        let written = self.write(place, then, held.since);
        let written = written.and_then(|manifest| {
            place.keep_name().map_err(failed("write what is saved"))?;
            Ok(manifest)
        });
        if after == AfterSnapshot::KeepFrozen && written.is_ok() {
            return written;
        }
        held.release();
        // What was being written when it went on is on the disk now, and counts no more.
        self.restore_limits();
        written
    }

    /// Lets the sandbox go on, with its own limits.
    fn release(&self) -> io::Result<()> {
        let id = self.manifest.id.as_str();
        let gone_on = self.runtime.hold(id, &self.directory, false);
        self.restore_limits();
        // One that stands still keeps the mark: the next start lets it go on.
        gone_on?;
        if let Err(error) = manifest::mark_held(&self.directory, false) {
            tracing::warn!(sandbox.id = %id, %error, "a sandbox is marked as held still, and is not");
        }
        Ok(())
    }

    fn restore_limits(&self) {
        let (group, limits) = (
            self.shared.group(&self.manifest.id),
            self.manifest.in_group(self.manifest.resources),
        );
        let restored = group
            .set_cpu(limits.cpu)
            .and_then(|()| group.set_memory(limits.memory));
        if let Err(error) = restored {
            tracing::debug!(sandbox.id = %self.manifest.id, %error, "a limit is not back yet");
        }
    }

    /// Holds the sandbox still. Its limits are lifted meanwhile: what is written to save it is the
    /// machine's work, and would else count as its own.
    fn hold(&self) -> Result<Held<'_>, DriverError> {
        let id = self.manifest.id.as_str();
        manifest::mark_held(&self.directory, true).map_err(failed("hold the sandbox still"))?;
        let group = self.shared.group(&self.manifest.id);
        let limits = self.manifest.in_group(self.manifest.resources);
        if self.contents.has_memory() {
            // Failing to lift a limit makes it slower, not wrong.
            let _ = group.set_cpu(limits.cpu.max(CPU_AT_START));
            let _ = group.set_memory(Mib(limits.memory.0.saturating_mul(2)));
        }
        let held = Held {
            save: self,
            since: Instant::now(),
            released: Cell::new(false),
        };
        match self.runtime.hold(id, &self.directory, true) {
            Ok(()) => Ok(held),
            Err(error) => {
                held.release();
                Err(failed("hold the sandbox still")(error))
            }
        }
    }

    /// Writes all there is to `place`: the files too, unless the sandbox rests among them.
    fn write(
        &self,
        place: &Place,
        then: Then<'_>,
        since: Instant,
    ) -> Result<saved::Manifest, DriverError> {
        let disk = &self.shared.disk;
        if let Some(owner) = self.manifest.owner {
            self.shared.has_room(owner)?;
        }
        let new = place.prepare_for(disk, self.manifest.owner);
        let new = new.map_err(failed("make a directory"))?;
        let begun = since.elapsed();
        let written = self.take(&new, then, since).and_then(|freeze| {
            let taken = since.elapsed();
            let parts = self.parts(freeze).map_err(failed("count the files"))?;
            let manifest = new
                .publish(parts, disk, place)
                .map_err(failed("write what is saved"))?;
            tracing::debug!(
                sandbox.id = %self.manifest.id,
                held_ms = begun.as_millis(),
                taken_ms = taken.as_millis(),
                kept_ms = since.elapsed().as_millis(),
                "saved"
            );
            // Every byte has just been looked at.
            if let Some(stamp) = manifest.stamp(place.directory()) {
                self.shared.note_verified(stamp);
            }
            Ok(manifest)
        });
        if written.is_err() {
            // What stays is cleared by the next start; the first error is the one that counts.
            let _ = new.remove(disk);
        }
        written
    }

    /// Takes memory and files, and returns for how long the sandbox has stood still.
    fn take(&self, new: &Place, then: Then<'_>, since: Instant) -> Result<Duration, DriverError> {
        let id = self.manifest.id.as_str();
        if self.contents.has_memory() {
            let memory = new.memory();
            fs::create_dir(&memory).map_err(failed("make a directory"))?;
            self.runtime
                .checkpoint(id, &self.directory, &memory, self.manifest.resources.memory)
                .map_err(failed("save the memory"))?;
        }
        if !matches!(then, Then::Rest) {
            self.shared
                .disk
                .keep(id, &new.files())
                .map_err(failed("keep the files"))?;
        }
        if let Then::GoOn(held) = then {
            held.release();
        }
        Ok(since.elapsed())
    }

    fn parts(&self, freeze: Duration) -> io::Result<Parts> {
        let manifest = &self.manifest;
        let disk = &self.shared.disk;
        Ok(Parts {
            source: manifest.id.clone(),
            execution: manifest.execution,
            saved: Saved {
                contents: self.contents,
                runtime: manifest.runtime.clone(),
                freeze,
                memory_bytes: 0,
                file_bytes: disk.usage(manifest.id.as_str())?,
                copied: disk.keeps_by().to_owned(),
            },
            runtime_build: self.runtime.info.build.clone(),
            image: manifest.image.clone(),
            layers: manifest.layers.clone(),
            envd: manifest.envd.parse().map_err(io::Error::other)?,
            resources: manifest.resources,
        })
    }
}

/// What follows when memory and files are kept.
#[derive(Clone, Copy)]
enum Then<'a> {
    /// The sandbox ends, and its files rest where they are.
    Rest,
    /// It goes on.
    GoOn(&'a Held<'a>),
    /// It stays held still.
    StayStill,
}

/// A sandbox that is held still.
struct Held<'a> {
    save: &'a Save,
    since: Instant,
    released: Cell<bool>,
}

impl Held<'_> {
    /// Lets it go on, with its own limits; once.
    fn release(&self) {
        if self.released.replace(true) {
            return;
        }
        if let Err(error) = retry_exhausted(|| self.save.release()) {
            tracing::error!(sandbox.id = %self.save.manifest.id, %error, "a sandbox does not go on");
        }
    }
}
