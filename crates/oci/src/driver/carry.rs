//! Carrying a snapshot to another machine, as one file.
//!
//! ```text
//! export.json      what the file is, whose it was, and the digest of `files.tar`
//! manifest.json    that of the snapshot, with the digests of its memory
//! envd             the daemon that runs in the memory
//! memory/…         what the runtime wrote
//! files.tar        what the sandbox had written
//! ```
//!
//! Nothing of it is unpacked as files of a sandbox before every byte has been compared with its
//! digest. The archives are the system's `tar`, which knows owners, attributes and holes.

mod beside;
mod fits;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_core::driver::DriverError;
use shoal_core::id::SnapshotId;
use shoal_core::snapshot::Saved;

use self::beside::{Beside, Stage};
use self::fits::fits;
use super::{Shared, failed};
use crate::bundle::ENVD_PATH;
use crate::layers::envd_layer;
use crate::machine::Machine;
use crate::saved::{Manifest, Place, Unreadable};

/// What the first file in an export begins with, so that another is not taken for one.
const FORMAT: &str = "shoal-snapshot-export";
/// The version that is written.
const VERSION: u32 = 1;
/// The names in the archive.
const EXPORT: &str = "export.json";
const FILES: &str = "files.tar";
const ENVD: &str = "envd";

/// What an export says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Export {
    format: String,
    version: u32,
    /// BLAKE3 of the archive of files.
    files: String,
    /// What the engine wants to know of it again.
    note: String,
}

/// Writes a snapshot to the file `target`, whole or not at all. Returns its bytes.
pub(super) async fn export(
    shared: Arc<Shared>,
    id: SnapshotId,
    target: PathBuf,
    note: String,
) -> Result<u64, DriverError> {
    let work = move || {
        let place = Place::of_snapshot(&shared.disk, id);
        let manifest =
            Manifest::read(place.directory()).map_err(|unreadable| match unreadable {
                Unreadable::Missing => DriverError::SnapshotNotFound(id),
                other => DriverError::Unusable(other.to_string()),
            })?;
        let stage = Stage::new(&shared.disk.snapshots(), &format!("{id}-export"))
            .map_err(failed("make a directory"))?;
        write(&shared, &place, &manifest, &stage.0, &target, note)
            .map_err(failed("export the snapshot"))
    };
    super::save::run(work).await
}

fn write(
    shared: &Shared,
    place: &Place,
    manifest: &Manifest,
    stage: &Path,
    target: &Path,
    note: String,
) -> io::Result<u64> {
    let files = stage.join(FILES);
    archive(
        &File::create(&files)?,
        &[("-C", place.files().as_os_str()), ("", ".".as_ref())],
    )?;
    let export = Export {
        format: FORMAT.to_owned(),
        version: VERSION,
        files: digest(&files)?,
        note,
    };
    fs::write(stage.join(EXPORT), serde_json::to_vec_pretty(&export)?)?;
    let daemon = shared.envd_layers.join(&manifest.envd);
    fs::copy(
        daemon.join(ENVD_PATH.trim_start_matches('/')),
        stage.join(ENVD),
    )?;
    let beside = Beside::new(target)?;
    let here = place.directory().as_os_str();
    let mut parts = vec![
        ("-C", stage.as_os_str()),
        ("", EXPORT.as_ref()),
        ("", ENVD.as_ref()),
        ("", FILES.as_ref()),
        ("-C", here),
        ("", "manifest.json".as_ref()),
    ];
    if place.memory().exists() {
        parts.push(("", "memory".as_ref()));
    }
    archive(&beside.file, &parts)?;
    beside.keep(target)
}

/// Takes the snapshot in the file `source` in under a new name, when it can run here. Returns what
/// was saved, and the note that it was exported with.
pub(super) async fn import(
    shared: Arc<Shared>,
    source: PathBuf,
    id: SnapshotId,
) -> Result<(Saved, String), DriverError> {
    let work = move || {
        let place = Place::of_snapshot(&shared.disk, id);
        let new = place
            .prepare(&shared.disk)
            .map_err(failed("make a directory"))?;
        let taken = take_in(&shared, &source, &new, &place);
        if taken.is_err() {
            // What stays is cleared by the next start; the first error is the one that counts.
            let _ = new.remove(&shared.disk);
        }
        taken
    };
    super::save::run(work).await
}

fn take_in(
    shared: &Shared,
    source: &Path,
    new: &Place,
    place: &Place,
) -> Result<(Saved, String), DriverError> {
    let refused = |what: String| DriverError::Unusable(what);
    let directory = new.directory();
    unpack(
        source,
        directory,
        &["--no-same-owner", "--no-same-permissions"],
    )
    .map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => DriverError::NoSpace,
        _ => refused(format!("{}: {error}", source.display())),
    })?;
    plain_files_only(directory).map_err(failed("read the export"))?;
    let text = fs::read(directory.join(EXPORT))
        .map_err(|_| refused("it is no export of a snapshot".to_owned()))?;
    let export: Export = serde_json::from_slice(&text)
        .map_err(|e| refused(format!("its description cannot be read: {e}")))?;
    if export.format != FORMAT || export.version > VERSION {
        return Err(refused(format!(
            "it is of version {} and this program knows up to {VERSION}",
            export.version
        )));
    }
    let manifest = Manifest::read(directory).map_err(|e| refused(e.to_string()))?;
    manifest
        .verify(directory)
        .map_err(|e| refused(e.to_string()))?;
    let found = digest(&directory.join(FILES)).map_err(failed("read the export"))?;
    if found != export.files {
        return Err(refused(format!("{FILES} is damaged: its content")));
    }
    can_run(shared, &manifest)?;
    let layer = envd_layer(&shared.home.data, &directory.join(ENVD))
        .map_err(failed("install the daemon"))?;
    if layer != manifest.envd {
        return Err(refused("its daemon is damaged: its content".to_owned()));
    }
    unpack_files(shared, new).map_err(failed("unpack the files"))?;
    let publish = || {
        for name in [EXPORT, ENVD, FILES] {
            fs::remove_file(directory.join(name))?;
        }
        shared.disk.sync()?;
        new.show(place)
    };
    publish().map_err(failed("keep the snapshot"))?;
    Ok((manifest.saved, export.note))
}

/// Whether what it stands on is here, and its memory can go on.
fn can_run(shared: &Shared, manifest: &Manifest) -> Result<(), DriverError> {
    if shared.layers.by_digest(&manifest.layers).is_none() {
        return Err(DriverError::ImageNotFound(manifest.image.clone()));
    }
    let runtimes: Vec<_> = shared.runtimes.iter().map(|known| &known.info).collect();
    fits(&runtimes, &Machine::this(), manifest)
}

fn unpack_files(shared: &Shared, new: &Place) -> io::Result<()> {
    let files = new.files();
    shared.disk.make_at(&files)?;
    unpack(
        &new.directory().join(FILES),
        &files,
        &[
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "--same-owner",
            "--same-permissions",
        ],
    )
}

/// Refuses links and devices where only plain files are meant.
fn plain_files_only(directory: &Path) -> io::Result<()> {
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if !kind.is_file() {
                return Err(io::Error::other("it holds what is no plain file"));
            }
        }
    }
    Ok(())
}

fn digest(file: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(file)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Makes an archive of `parts`: names, and the directories that they are in from there on.
fn archive(target: &File, parts: &[(&str, &std::ffi::OsStr)]) -> io::Result<()> {
    let mut command = Command::new("tar");
    command
        .args(["--create", "--sparse", "--numeric-owner", "--acls"])
        .args(["--xattrs", "--xattrs-include=*", "--file=-"])
        .stdout(target.try_clone()?);
    for (option, value) in parts {
        if !option.is_empty() {
            command.arg(option);
        }
        command.arg(value);
    }
    run(command)
}

fn unpack(source: &Path, target: &Path, options: &[&str]) -> io::Result<()> {
    let mut command = Command::new("tar");
    command
        .args(["--extract", "--numeric-owner"])
        .args(options)
        .arg("--file")
        .arg(source)
        .arg("-C")
        .arg(target);
    run(command)
}

fn run(mut command: Command) -> io::Result<()> {
    let output = command.env("LC_ALL", "C").output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("No space left") || said.contains("quota exceeded") {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let first: String = said
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(400)
        .collect();
    Err(io::Error::other(first))
}
