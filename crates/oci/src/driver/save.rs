//! Saving a sandbox: pauses and snapshots.

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
use shoal_node::saved::{self, Parts, SavedDirectory};

use super::create::CPU_AT_START;
use super::{Shared, destroy, digests, failed, paused};
use crate::runtime::Runtime;

/// Saves a sandbox and ends its run.
pub(super) async fn pause(
    shared: Arc<Shared>,
    id: SandboxId,
    contents: Contents,
) -> Result<Saved, DriverError> {
    let place = SavedDirectory::of_paused(&shared.disk, &id);
    let alive = shared.live.lock().contains_key(&id);
    if !alive {
        let directory = place.directory().to_owned();
        let known = blocking(move || Ok::<_, DriverError>(saved::SavedManifest::read(&directory)));
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
    shared.digests.stop(&id).await;
    let disk = shared.clone();
    let saving = move || {
        // The checkpoint of an earlier pause, if its removal failed.
        place
            .remove(&disk.disk)
            .map_err(failed("remove what was saved"))?;
        std::thread::scope(|scope| {
            // Without the manifest the checkpoint would belong to no sandbox after a crash.
            let known = scope.spawn(|| Manifest::sync(&save.directory));
            let kept = save.to_pause(&place);
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
    // From here on it is saved. It stays frozen until its processes end. Preparing the next run waits
    // for that, and removes what else belongs to this run.
    if let Err(error) = destroy::begin_end(&shared, &id).await {
        tracing::error!(sandbox.id = %id, %error, "the processes of a paused sandbox have not ended: they stay frozen until it is resumed or ended");
    }
    digests::begin(&shared, &id);
    Ok(manifest.saved)
}

/// Takes a snapshot of a sandbox, which then resumes or stays frozen.
pub(super) async fn snapshot(
    shared: Arc<Shared>,
    id: SandboxId,
    snapshot: SnapshotId,
    contents: Contents,
    after: AfterSnapshot,
) -> Result<Saved, DriverError> {
    let save = Save::new(&shared, &id, contents)?;
    let place = SavedDirectory::of_snapshot(&shared.disk, snapshot);
    let manifest = blocking(move || save.beside(&place, after)).await?;
    Ok(manifest.saved)
}

/// Thaws a sandbox that a snapshot left frozen.
pub(super) async fn thaw_source(shared: Arc<Shared>, id: SandboxId) -> Result<(), DriverError> {
    let save = Save::new(&shared, &id, Contents::Filesystem)?;
    blocking(move || save.thaw().map_err(failed("thaw the sandbox"))).await
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
    // Waits for starts from it, which then have opened their files.
    let writing = lock.write_owned().await;
    let place = SavedDirectory::of_snapshot(&shared.disk, id);
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

/// A save of a running sandbox.
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

    /// Saves the sandbox and leaves it frozen, to be ended.
    fn to_pause(&self, place: &SavedDirectory) -> Result<saved::SavedManifest, DriverError> {
        let frozen = self.freeze()?;
        let kept = self.write(place, Then::End, frozen.since);
        if kept.is_err() {
            frozen.thaw();
        }
        kept
    }

    /// Saves the sandbox with a copy of its files. It resumes as soon as the copy is taken, unless it
    /// must stay frozen and the save succeeded.
    fn beside(
        &self,
        place: &SavedDirectory,
        after: AfterSnapshot,
    ) -> Result<saved::SavedManifest, DriverError> {
        let frozen = self.freeze()?;
        let then = match after {
            AfterSnapshot::Resume => Then::Thaw(&frozen),
            AfterSnapshot::KeepFrozen => Then::StayFrozen,
        };
        let written = self.write(place, then, frozen.since);
        let written = written.and_then(|manifest| {
            place.keep_name().map_err(failed("write what is saved"))?;
            Ok(manifest)
        });
        if after == AfterSnapshot::KeepFrozen && written.is_ok() {
            return written;
        }
        frozen.thaw();
        // The pages that were being written when it thawed are on the disk now, and no longer count.
        self.restore_limits();
        written
    }

    /// Thaws the sandbox, with its own limits.
    fn thaw(&self) -> io::Result<()> {
        let id = self.manifest.id.as_str();
        let thawed = self.runtime.set_frozen(id, &self.directory, false);
        self.restore_limits();
        // A frozen sandbox keeps its mark, and the next start thaws it.
        thawed?;
        if let Err(error) = manifest::mark_held(&self.directory, false) {
            tracing::warn!(sandbox.id = %id, %error, "a sandbox is marked as frozen, and is not");
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

    /// Freezes the sandbox and lifts its limits meanwhile. Writing the save is the node's work, and
    /// must not count against the sandbox.
    fn freeze(&self) -> Result<Frozen<'_>, DriverError> {
        let id = self.manifest.id.as_str();
        manifest::mark_held(&self.directory, true).map_err(failed("freeze the sandbox"))?;
        let group = self.shared.group(&self.manifest.id);
        let limits = self.manifest.in_group(self.manifest.resources);
        if self.contents.has_memory() {
            // Failing to lift a limit makes it slower, not wrong.
            let _ = group.set_cpu(limits.cpu.max(CPU_AT_START));
            let _ = group.set_memory(Mib(limits.memory.0.saturating_mul(2)));
        }
        let frozen = Frozen {
            save: self,
            since: Instant::now(),
            thawed: Cell::new(false),
        };
        match self.runtime.set_frozen(id, &self.directory, true) {
            Ok(()) => Ok(frozen),
            Err(error) => {
                frozen.thaw();
                Err(failed("freeze the sandbox")(error))
            }
        }
    }

    /// Writes memory and metadata to `place`, and the files too unless the sandbox is being paused.
    fn write(
        &self,
        place: &SavedDirectory,
        then: Then<'_>,
        since: Instant,
    ) -> Result<saved::SavedManifest, DriverError> {
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
            // Nobody uses a paused sandbox before its resume. What uses a snapshot wants its digests.
            let digests = match then {
                Then::End => saved::Digests::Later,
                Then::Thaw(_) | Then::StayFrozen => saved::Digests::Now,
            };
            let manifest = new
                .publish(parts, disk, place, digests)
                .map_err(failed("write what is saved"))?;
            tracing::debug!(
                sandbox.id = %self.manifest.id,
                held_ms = begun.as_millis(),
                taken_ms = taken.as_millis(),
                kept_ms = since.elapsed().as_millis(),
                "saved"
            );
            // Every byte was just read.
            if digests == saved::Digests::Now
                && let Some(stamp) = manifest.stamp(place.directory())
            {
                self.shared.note_verified(stamp);
            }
            Ok(manifest)
        });
        if written.is_err() {
            // The next start removes what stays. The first error is the one to report.
            let _ = new.remove(disk);
        }
        written
    }

    /// Takes memory and files. Returns how long the sandbox was frozen.
    fn take(
        &self,
        new: &SavedDirectory,
        then: Then<'_>,
        since: Instant,
    ) -> Result<Duration, DriverError> {
        let id = self.manifest.id.as_str();
        if self.contents.has_memory() {
            let memory = new.memory();
            fs::create_dir(&memory).map_err(failed("make a directory"))?;
            let limit = self.manifest.resources.memory;
            // Copying the pages into the cache takes longer than writing them, and the sandbox is frozen.
            let direct = self.shared.disk.takes_direct_writes();
            self.runtime
                .checkpoint(id, &self.directory, &memory, limit, direct)
                .map_err(failed("save the memory"))?;
        }
        if !matches!(then, Then::End) {
            self.shared
                .disk
                .keep(id, &new.files())
                .map_err(failed("keep the files"))?;
        }
        if let Then::Thaw(frozen) = then {
            frozen.thaw();
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

/// The sandbox's next state after its memory and files are saved.
#[derive(Clone, Copy)]
enum Then<'a> {
    /// The sandbox ends, and its files stay where they are.
    End,
    /// It thaws.
    Thaw(&'a Frozen<'a>),
    /// It stays frozen.
    StayFrozen,
}

/// A frozen sandbox.
struct Frozen<'a> {
    save: &'a Save,
    since: Instant,
    thawed: Cell<bool>,
}

impl Frozen<'_> {
    /// Thaws it once, with its own limits.
    fn thaw(&self) {
        if self.thawed.replace(true) {
            return;
        }
        if let Err(error) = retry_exhausted(|| self.save.thaw()) {
            tracing::error!(sandbox.id = %self.save.manifest.id, %error, "a sandbox does not thaw");
        }
    }
}
