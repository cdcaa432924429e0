//! The creation of a container: its parts are recorded, and its checkpoint verified before anything of it
//! exists.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use shoal_checkpoint::{
    Candidate, CheckpointId, ContainerRecord, Contents, DAEMON, DAEMON_INIT, DAEMON_VOLUME, IMAGES,
    Manifest, RESTORE_FROM, Records, Restore, STORE, SandboxRecord, SavedContainer, Store,
    StoreError, features, kept_volumes,
};

use crate::call::Call;
use crate::failure::Failure;
use crate::spec::Spec;
use crate::{elsewhere, end, mounts, runtime, verified};

/// Prepares a container. Returns more flags for runsc.
pub(crate) fn prepare(call: &Call, state: &Path) -> Result<Vec<OsString>, Failure> {
    let bundle = call.bundle.clone().ok_or(Failure::Incomplete("a bundle"))?;
    let mut spec = Spec::read(&bundle)?;
    spec.check_annotations()?;
    let Some(sandbox) = spec.cri("sandbox-id").map(str::to_owned) else {
        // It is not Kubernetes' container.
        return Ok(Vec::new());
    };
    let records = Records::at(state);
    let name = match spec.cri("container-type") {
        Some("sandbox") => None,
        _ => {
            let name = spec.cri("container-name");
            Some(
                name.ok_or(Failure::Incomplete("the container's name"))?
                    .to_owned(),
            )
        }
    };
    if name.is_none() {
        let record = sandbox_record(&spec, state, &bundle)?;
        let written = records.write_sandbox(&sandbox, &record);
        written.map_err(|error| Failure::io("the sandbox's record", error))?;
        let mut changed = spec.join_pod();
        if let Some(directory) = &record.daemon_volume {
            make_volume(directory).map_err(|error| Failure::io(directory.display(), error))?;
            spec.keep_daemon_volume(directory);
            changed = true;
        }
        if changed {
            spec.write(&bundle)?;
        }
    }
    let record = records
        .sandbox(&sandbox)
        .map_err(|error| Failure::io("the sandbox's record", error))?;
    prepare_daemon(&mut spec, name.as_deref(), &record, &bundle)?;
    let digest = spec.image_digest(name.as_deref());
    let asked = Asked { name, digest };
    let container = container_record(call, &records, &record, sandbox, asked, &bundle)?;
    records
        .write_container(&call.id, &container)
        .map_err(|error| Failure::io("the container's record", error))?;
    Ok(files_of(&record, &container))
}

/// Changes the two containers by which a pod gets its daemon.
fn prepare_daemon(
    spec: &mut Spec,
    name: Option<&str>,
    sandbox: &SandboxRecord,
    bundle: &Path,
) -> Result<(), Failure> {
    let (Some(name), Some(container)) = (name, spec.annotations.get(DAEMON).cloned()) else {
        return Ok(());
    };
    if name == DAEMON_INIT {
        spec.fill_for(name, &container);
    } else if name != container || !spec.start_daemon() {
        return Ok(());
    } else if let Some(directory) = &sandbox.daemon_volume {
        spec.mount_daemon_volume(directory);
    }
    spec.write(bundle)
}

/// A directory like that of an `emptyDir`: all users may write to it, where it is mounted for that.
fn make_volume(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o777))
}

/// The directory for the daemon's volume, if the checkpoint has that volume and the pod has not. containerd removes it with the
/// sandbox.
fn daemon_volume(
    spec: &Spec,
    manifest: &Manifest,
    own: &BTreeSet<String>,
    bundle: &Path,
) -> Option<PathBuf> {
    let wanted = spec.annotations.contains_key(DAEMON) && manifest.contents == Contents::Memory;
    let missing = manifest.volumes.contains(DAEMON_VOLUME) && !own.contains(DAEMON_VOLUME);
    if !(wanted && missing) {
        return None;
    }
    // containerd has a directory on the disk for each sandbox, and links it from the bundle, which is in memory.
    let place = fs::canonicalize(bundle.join("work")).unwrap_or_else(|_| bundle.to_owned());
    Some(place.join(DAEMON_VOLUME))
}

/// The inputs of a new sandbox, and its checkpoint.
fn sandbox_record(spec: &Spec, state: &Path, bundle: &Path) -> Result<SandboxRecord, Failure> {
    let of = |key, what| {
        let value = spec.cri(key).ok_or(Failure::Incomplete(what))?;
        Ok::<_, Failure>(value.to_owned())
    };
    let mut record = SandboxRecord {
        namespace: of("sandbox-namespace", "the namespace")?,
        pod: of("sandbox-name", "the pod's name")?,
        runtime: runtime::digest(state)?,
        volumes: kept_volumes(&spec.annotations),
        daemon_volume: None,
        restore: None,
    };
    if let Some(name) = spec.annotations.get(RESTORE_FROM) {
        let id: CheckpointId = name.parse()?;
        if spec.annotations.contains_key(IMAGES) {
            elsewhere::wait(&Store::at(STORE), &record.namespace, &id)?;
        }
        let store = Store::at(STORE);
        let manifest = store.manifest(&record.namespace, &id).map_err(told(&id))?;
        record.daemon_volume = daemon_volume(spec, &manifest, &record.volumes, bundle);
        if record.daemon_volume.is_some() {
            record.volumes.insert(DAEMON_VOLUME.to_owned());
        }
        record.restore = Some(checked(&record, &id, (&store, manifest), state)?);
    }
    Ok(record)
}

/// The checkpoint, if the pod may be restored from it.
fn checked(
    record: &SandboxRecord,
    id: &CheckpointId,
    (store, manifest): (&Store, Manifest),
    state: &Path,
) -> Result<Restore, Failure> {
    let told = told(id);
    let cpuinfo =
        fs::read_to_string("/proc/cpuinfo").map_err(|error| Failure::io("/proc/cpuinfo", error))?;
    let candidate = Candidate {
        namespace: &record.namespace,
        runtime: &record.runtime,
        features: &features(&cpuinfo),
        volumes: &record.volumes,
    };
    manifest
        .admits(&candidate)
        .map_err(|error| told(error.into()))?;
    verified::verify(state, store, &manifest, id).map_err(&told)?;
    Ok(Restore {
        id: id.to_string(),
        directory: store.place(&record.namespace, id.key()).map_err(&told)?,
        contents: manifest.contents,
        containers: manifest.containers,
    })
}

/// A failure of the store with a checkpoint.
fn told(id: &CheckpointId) -> impl Fn(StoreError) -> Failure {
    let id = id.to_string();
    move |error| Failure::Store {
        id: id.clone(),
        error,
    }
}

/// A container that is asked for.
struct Asked {
    /// Its name; none for the sandbox's own.
    name: Option<String>,
    /// The digest by which the pod names its image, if it does.
    digest: Option<String>,
}

/// The inputs of a new container, and whether its start restores it.
fn container_record(
    call: &Call,
    records: &Records,
    sandbox: &SandboxRecord,
    id: String,
    Asked { name, digest }: Asked,
    bundle: &Path,
) -> Result<ContainerRecord, Failure> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| Failure::io("/proc/self/mountinfo", error))?;
    let layers = mounts::layers(&mountinfo, &bundle.join("rootfs"));
    let mut restores = false;
    if let Some(restore) = &sandbox.restore {
        let mark = name.as_deref().unwrap_or(PAUSE);
        let again = records.was_restored(&id, mark);
        let again = again.map_err(|error| Failure::io("the container's record", error))?;
        if again && !sandbox.volumes.is_empty() {
            // The restored sandbox no longer knows the files behind its volumes: it would empty them.
            end::end_sandbox(call, &id);
            return Err(Failure::StartsAgain(mark.to_owned()));
        }
        restores = !again;
        let begun = records.has_begun(&id, mark);
        if restores && begun.map_err(|error| Failure::io("the container's record", error))? {
            // A sandbox can restore a container only once, and the shim still waits for the exit of the first attempt.
            end::end_sandbox(call, &id);
            end::end_shim();
            return Err(Failure::Interrupted(mark.to_owned()));
        }
        if let Some(name) = name.as_deref().filter(|_| restores) {
            let admitted =
                SavedContainer::admits(&restore.containers, name, &layers, digest.as_deref());
            admitted.map_err(|error| Failure::Refused {
                id: restore.id.clone(),
                error,
            })?;
        }
    }
    Ok(ContainerRecord {
        sandbox: id,
        name,
        layers,
        restores,
    })
}

/// The name under which the sandbox's own container is remembered. No container of a pod has it.
pub(crate) const PAUSE: &str = "_sandbox";

/// The flag that gives a sandbox the saved files of its containers, where no memory was saved.
fn files_of(sandbox: &SandboxRecord, container: &ContainerRecord) -> Vec<OsString> {
    let restore = sandbox.restore.as_ref();
    let restore = restore.filter(|restore| restore.contents == Contents::Files);
    let (Some(restore), None) = (restore, &container.name) else {
        return Vec::new();
    };
    let mut flag = OsString::from("--fs-restore-image-path=");
    flag.push(&restore.directory);
    vec![flag]
}
