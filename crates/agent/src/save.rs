//! Saves a pod.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use shoal_checkpoint::{CheckpointId, Contents, Key, Manifest, StoreError, features};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase};
use tokio::sync::SemaphorePermit;

use crate::agent::Agent;
use crate::failure::{Failure, SaveError, Unsaved};
use crate::room::{Needed, Room};
use crate::source::{self, Place, Source, Then};

/// The space of a save beyond the memory of the sandbox: tables of the kernel, and of the pages.
const OVERHEAD: u64 = 16 << 20;

/// How long a pass waits until the pod of a paused sandbox is deleted, and how often it looks.
const DELETED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A save, in multiples of the sandbox's memory.
const SAVE: Needed = Needed {
    kept: 1,
    scratch: 0,
};
/// The end of a pod: only another save ends it well.
const END: Needed = Needed {
    kept: 0,
    scratch: 1,
};
/// A save, and the end of the pod.
const SAVE_AND_END: Needed = Needed {
    kept: 1,
    scratch: 1,
};

/// The resources of a save.
struct Saving<'a> {
    _place: SemaphorePermit<'a>,
    /// The size of the saved data, in bytes.
    needed: Needed,
    room: Room,
}

impl Agent {
    /// Saves the pod of a checkpoint, unless that was done before, and ends it if the checkpoint says so. The result has the
    /// checkpoint as it is then.
    pub(crate) async fn save(
        &self,
        checkpoint: &Checkpoint,
    ) -> Result<(CheckpointId, Checkpoint), SaveError> {
        let namespace = checkpoint.metadata.namespace.clone().unwrap_or_default();
        let uid = checkpoint.metadata.uid.as_deref().unwrap_or_default();
        let key = Key::of_uid(uid).map_err(|_| Unsaved::Uid)?;
        let name = checkpoint.pod().ok_or(Unsaved::NoPod)?;
        let then = Then::of(checkpoint);
        let pod = self.cluster.pod(&namespace, name).await?;
        if let Some(id) = self.store.find(&namespace, &key)? {
            // An earlier pass saved it, and may have ended the pod.
            let ending = self.complete_end(checkpoint, &id, &key, then, pod).await?;
            return Ok((id, ending));
        }
        let source = pod.as_ref().ok_or_else(|| Unsaved::Gone(name.to_owned()))?;
        let source = Source::of(source, &self.node, &self.records, then)?;
        self.check_runtime(&source).await?;
        let contents = contents(checkpoint);
        if then == Then::Runs {
            let saving = self.room(&source.place(), &key, SAVE).await?;
            let (id, _) = self.write(&source, &key, contents, saving).await?;
            return Ok((id, checkpoint.clone()));
        }
        let (id, saving) = self.write_stopped(&source, &key, contents).await?;
        let ending = self.begin_end(checkpoint, &source.place(), then).await?;
        self.end(&source.place(), &key, saving).await?;
        Ok((id, ending))
    }

    /// Ends the pod of a complete checkpoint, if that is still to be done.
    async fn complete_end(
        &self,
        checkpoint: &Checkpoint,
        id: &CheckpointId,
        key: &Key,
        then: Then,
        pod: Option<Pod>,
    ) -> Result<Checkpoint, Failure> {
        let namespace = checkpoint.metadata.namespace.clone().unwrap_or_default();
        let saved = self.store.manifest(&namespace, id)?;
        // Another pod of the name is not the one that was saved.
        let pod = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&*saved.pod_uid));
        let place = pod.and_then(|pod| Place::of(&pod, &self.records));
        let Some(place) = place.filter(|_| then != Then::Runs) else {
            return Ok(checkpoint.clone());
        };
        let saving = self.room(&place, key, END).await;
        let saving = saving.map_err(SaveError::after_save)?;
        let ending = self.begin_end(checkpoint, &place, then).await?;
        self.end(&place, key, saving).await?;
        Ok(ending)
    }

    /// Says that the pod is about to end. One whose containers the kubelet would start again is deleted first, by the
    /// operator.
    async fn begin_end(
        &self,
        checkpoint: &Checkpoint,
        place: &Place,
        then: Then,
    ) -> Result<Checkpoint, Failure> {
        let ending = self.cluster.begin_end(checkpoint).await?;
        if then == Then::IsDeleted {
            let until = tokio::time::Instant::now() + DELETED_WITHIN;
            while self.restarts(place).await? {
                if tokio::time::Instant::now() > until {
                    return Err(Failure::NotEnded(Unsaved::NotDeleted));
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        Ok(ending)
    }

    async fn restarts(&self, place: &Place) -> kube::Result<bool> {
        let pod = self.cluster.pod(&place.namespace, &place.pod).await?;
        let same = pod.filter(|pod| pod.metadata.uid.as_ref() == Some(&place.uid));
        Ok(same.is_some_and(|pod| source::restarts(&pod)))
    }

    /// Saves a pod that does nothing from then on: nothing that it does between the save and its end would be lost.
    async fn write_stopped(
        &self,
        source: &Source,
        key: &Key,
        contents: Contents,
    ) -> Result<(CheckpointId, Saving<'_>), SaveError> {
        let saving = self.room(&source.place(), key, SAVE_AND_END).await?;
        // A process before this one may have stopped it. Only a known pause counts.
        if let Err(error) = self.runsc.resume(&source.sandbox).await {
            tracing::debug!(%error, "the pod was not stopped");
        }
        self.runsc.pause(&source.sandbox).await?;
        let written = self.write(source, key, contents, saving).await;
        if written.is_err() {
            // The pod continues without a checkpoint.
            self.runsc.resume(&source.sandbox).await?;
        }
        written
    }

    /// Resumes a pod that was paused for a checkpoint which failed.
    pub(crate) async fn let_go(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let status = checkpoint.status.as_ref();
        let failed = status.and_then(|status| status.phase) == Some(CheckpointPhase::Failed);
        let (true, Some(false), Some(name)) =
            (failed, checkpoint.spec.keep_running, checkpoint.pod())
        else {
            return Ok(());
        };
        let namespace = checkpoint.metadata.namespace.clone().unwrap_or_default();
        let pod = self.cluster.pod(&namespace, name).await?;
        // It need not be one that can be saved.
        let sandbox = pod.and_then(|pod| source::sandbox(&pod, &self.records));
        if let Some(sandbox) = sandbox
            && let Err(error) = self.runsc.resume(&sandbox).await
        {
            tracing::debug!(%error, "the pod was not stopped");
        }
        Ok(())
    }

    /// Waits for a place, and reserves the estimated space.
    async fn room(
        &self,
        source: &Place,
        key: &Key,
        times: Needed,
    ) -> Result<Saving<'_>, SaveError> {
        let place = self.places.acquire().await.map_err(|_| Failure::Stopping)?;
        let used = self.runsc.usage(&source.sandbox).await;
        let used = used.map_err(|why| killed(&source.pod, why))?;
        let needed = times.of(used + OVERHEAD);
        let room = self.take_room(&source.namespace, key, needed, 0)?;
        Ok(Saving {
            _place: place,
            needed,
            room,
        })
    }

    /// Keeps room, of which some bytes are written already. Deletes copies of other nodes' checkpoints if there is too little.
    pub(crate) fn take_room(
        &self,
        namespace: &str,
        key: &Key,
        needed: Needed,
        written: u64,
    ) -> Result<Room, SaveError> {
        let (store, bounds) = (&self.store, self.bounds);
        let room = self
            .rooms
            .take_in(store, bounds, namespace, key, (needed, written))?;
        Ok(room.map_err(Unsaved::from)?)
    }

    /// Writes the checkpoint. Its place and room are returned with the result: the end of the pod needs them, too.
    async fn write<'a>(
        &'a self,
        source: &Source,
        key: &Key,
        contents: Contents,
        mut saving: Saving<'a>,
    ) -> Result<(CheckpointId, Saving<'a>), SaveError> {
        let staged = self.store.stage(key)?;
        let (sandbox, path) = (&source.sandbox, staged.path());
        let saved = match contents {
            Contents::Memory => self.runsc.checkpoint(sandbox, path).await,
            Contents::Files => self.runsc.save_files(sandbox, path).await,
        };
        if let Err(why) = saved {
            return Err(self.failed_save(source, why).await.into());
        }
        let pod = self.cluster.pod(&source.namespace, &source.pod).await?;
        source.check_same(pod.as_ref())?;
        let size = self.store.size(&staged)?;
        if size > saving.needed.kept {
            // The runtime's figure does not count all files.
            drop(saving.room);
            saving.needed.kept = size;
            saving.room = self.take_room(&source.namespace, key, saving.needed, size)?;
        }
        let manifest = manifest(source, contents)?;
        // It reads all bytes, and waits for the disk.
        let store = self.store.clone();
        let path = staged.keep();
        let key = key.clone();
        let published =
            tokio::task::spawn_blocking(move || store.staged(&key, path).publish(manifest)).await?;
        Ok((published?, saving))
    }

    /// Why a call of the runtime failed to save a pod.
    async fn failed_save(&self, source: &Source, why: Unsaved) -> Unsaved {
        if self.runsc.usage(&source.sandbox).await.is_ok() {
            return why;
        }
        killed(&source.pod, why)
    }

    /// The memory of one build is unreadable to another.
    async fn check_runtime(&self, source: &Source) -> Result<(), SaveError> {
        let runsc = self.runsc.clone();
        let read = tokio::task::spawn_blocking(move || runsc.build()).await?;
        let build = read.map_err(|error| StoreError::Disk {
            what: self.runsc.program().display().to_string(),
            error,
        })?;
        if build != source.record.runtime {
            let pod = source.pod.clone();
            return Err(Unsaved::Replaced { pod }.into());
        }
        Ok(())
    }

    /// Ends a pod that is saved. When that fails it is tried again: the checkpoint is complete, and the pod may have ended.
    async fn end(&self, source: &Place, key: &Key, _held: Saving<'_>) -> Result<(), Failure> {
        let staged = self.store.stage(key)?;
        let ended = self.runsc.end(&source.sandbox, staged.path()).await;
        ended.map_err(Failure::NotEnded)?;
        // Its processes are stopped and then killed, so none of them continues.
        if let Err(error) = self.runsc.resume(&source.sandbox).await {
            tracing::debug!(%error, "the pod has ended already");
        }
        Ok(())
    }
}

/// A call of the runtime failed for a pod whose sandbox does not answer.
fn killed(pod: &str, why: Unsaved) -> Unsaved {
    Unsaved::Killed {
        pod: pod.to_owned(),
        why: Box::new(why),
    }
}

/// The contents of a checkpoint. The operator has checked that the request has no others.
fn contents(checkpoint: &Checkpoint) -> Contents {
    if checkpoint.spec.has_memory() {
        Contents::Memory
    } else {
        Contents::Files
    }
}

fn manifest(source: &Source, contents: Contents) -> Result<Manifest, StoreError> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").map_err(|error| StoreError::Disk {
        what: "/proc/cpuinfo".to_owned(),
        error,
    })?;
    let (namespace, pod) = (source.namespace.clone(), source.pod.clone());
    let mut manifest = Manifest::new(namespace, pod, source.uid.clone(), contents);
    manifest.runtime.clone_from(&source.record.runtime);
    manifest.features = features(&cpuinfo);
    manifest.containers.clone_from(&source.containers);
    manifest.volumes.clone_from(&source.record.volumes);
    manifest.service_account_token = source.token;
    Ok(manifest)
}
