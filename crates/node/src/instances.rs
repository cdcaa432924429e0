//! The installations that left resources on this machine, and which of them are abandoned.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::cgroup::Hierarchy;
use crate::home;
use crate::lock;
use crate::manifest::Manifest;
use crate::network::{self, Remains};
use crate::rootfs;

/// The user of an installation's resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A server runs on its data directory.
    Running,
    /// This many sandboxes wait for a server to start on its data directory.
    Waiting(usize),
    /// Abandoned: its data directory has no sandboxes, or does not exist.
    Nobody,
    /// Unknown: no file says where its data directory is.
    Unknown,
}

/// An installation, identified by its resources on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// Its short name, part of the names of its resources.
    pub name: String,
    /// Its data directory, which may no longer exist.
    pub data: Option<PathBuf>,
    /// The user of these resources.
    pub owner: Owner,
    /// The resources, one line each.
    pub things: Vec<String>,
}

/// Finds every installation with resources on this machine. `data` is a known data directory, which
/// is included even if no file refers to it.
///
/// # Errors
/// When the machine cannot be searched.
pub fn instances(data: &Path) -> io::Result<Vec<Instance>> {
    instances_of(data, Path::new(home::MACHINE))
}

fn instances_of(data: &Path, machine: &Path) -> io::Result<Vec<Instance>> {
    let mut names = network::instances(machine)?;
    for entry in fs::read_dir(machine).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && name != "slots" {
            names.insert(name);
        }
    }
    names.extend(Hierarchy::detect(Path::new("shoal"))?.names()?);
    let known = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    let mut found = Vec::new();
    for name in names {
        let said = home::data_of(&machine.join(&name));
        let data = said.or_else(|| (home::instance_of(&known) == name).then(|| known.clone()));
        let owner = owner(data.as_deref(), &machine.join(&name))?;
        let things = things(&name, data.as_deref(), machine)?;
        found.push(Instance {
            name,
            data,
            owner,
            things,
        });
    }
    Ok(found)
}

fn owner(data: Option<&Path>, run: &Path) -> io::Result<Owner> {
    // A server has both locks; the lock in the data directory disappears if that is deleted.
    if lock::is_taken(run)? {
        return Ok(Owner::Running);
    }
    let Some(data) = data else {
        return Ok(Owner::Unknown);
    };
    if lock::is_taken(data)? {
        return Ok(Owner::Running);
    }
    waiting(data)
}

fn groups(name: &str) -> io::Result<Hierarchy> {
    Hierarchy::detect(&Path::new("shoal").join(name))
}

fn things(name: &str, data: Option<&Path>, machine: &Path) -> io::Result<Vec<String>> {
    let run = machine.join(name);
    let hierarchy = groups(name)?;
    let mut things = Vec::new();
    let mut processes = BTreeSet::new();
    for group in hierarchy.names()? {
        processes.extend(hierarchy.group(&group).processes()?);
        things.push(format!("group of processes {group}"));
    }
    things.extend(processes.iter().map(|pid| format!("process {pid}")));
    let remains = Remains::of(name, &run, machine)?;
    let network = [
        ("interface", &remains.interfaces),
        ("packet filter table", &remains.tables),
    ];
    for (kind, names) in network {
        things.extend(names.iter().map(|name| format!("{kind} {name}")));
    }
    if !remains.slots.is_empty() {
        things.push(format!("{} network slots", remains.slots.len()));
    }
    for directory in [Some(run.as_path()), data].into_iter().flatten() {
        let mounts = rootfs::mounts_below(directory)?;
        things.extend(
            mounts
                .iter()
                .map(|point| format!("mount {}", point.display())),
        );
    }
    if let Some(data) = data {
        things.extend(
            devices(data)?
                .iter()
                .map(|device| format!("device {device}")),
        );
        let entries = fs::read_dir(home::sandboxes(data)).into_iter().flatten();
        things.extend(
            entries.filter_map(|entry| Some(format!("directory {}", entry.ok()?.path().display()))),
        );
    }
    if run.exists() {
        things.push(format!("directory {}", run.display()));
    }
    Ok(things)
}

/// The loop devices whose backing file is, or was, in `data`.
fn devices(data: &Path) -> io::Result<Vec<String>> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        let file = fs::read_to_string(entry.path().join("loop/backing_file"));
        if file.is_ok_and(|file| Path::new(file.trim()).starts_with(data)) {
            devices.push(format!("/dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    Ok(devices)
}

/// Removes all resources of an abandoned installation. The data directory with its images and
/// records stays.
///
/// # Errors
/// When the installation is in use, or a resource remains.
pub fn clear(instance: &Instance) -> io::Result<()> {
    clear_of(instance, Path::new(home::MACHINE))
}

fn clear_of(instance: &Instance, machine: &Path) -> io::Result<()> {
    let run = machine.join(&instance.name);
    let data = instance.data.as_deref().filter(|data| data.exists());
    // Prevents a server from starting meanwhile, and checks again who uses it.
    let there = [data, run.exists().then_some(run.as_path())];
    let _held = there
        .into_iter()
        .flatten()
        .map(lock::take)
        .collect::<io::Result<Vec<_>>>()?;
    let owner = match (&instance.owner, data) {
        // We hold the locks ourselves.
        (Owner::Nobody, Some(data)) => waiting(data)?,
        (owner, _) => owner.clone(),
    };
    if owner != Owner::Nobody {
        let text = format!("installation {} is in use", instance.name);
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    let hierarchy = groups(&instance.name)?;
    for group in hierarchy.names()? {
        hierarchy.group(&group).kill()?;
        hierarchy.group(&group).remove()?;
    }
    hierarchy.remove_parents();
    Remains::of(&instance.name, &run, machine)?.remove(&instance.name, &run, machine)?;
    rootfs::unmount_below(&run)?;
    if let Some(data) = &instance.data {
        rootfs::unmount_below(&home::sandboxes(data))?;
        rootfs::unmount_below(&data.join("disk"))?;
        for device in devices(data)? {
            // A mounted device detaches by itself.
            let _ = Command::new("losetup").args(["--detach", &device]).output();
        }
        remove_below(&home::sandboxes(data))?;
    }
    remove(&run)
}

/// The user of a data directory without a running server.
fn waiting(data: &Path) -> io::Result<Owner> {
    let waiting = match fs::read_dir(home::sandboxes(data)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        entries => entries?
            .filter_map(|entry| Manifest::read(&entry.ok()?.path()).ok()?)
            .count(),
    };
    Ok(if waiting > 0 {
        Owner::Waiting(waiting)
    } else {
        Owner::Nobody
    })
}

/// Deletes the contents of a directory that must have no mounts.
fn remove_below(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        remove(&entry?.path())?;
    }
    Ok(())
}

fn remove(directory: &Path) -> io::Result<()> {
    if !rootfs::mounts_below(directory)?.is_empty() {
        let text = format!("something is mounted below {}", directory.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
