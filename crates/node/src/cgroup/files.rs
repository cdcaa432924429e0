//! The files of a cgroup.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How often removing a busy group is tried. The kernel releases a group shortly after its last
/// process and sends no event for that.
const REMOVE_TRIES: u32 = 50;

pub(super) fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|e| named(path, e))
}

pub(super) fn write(path: &Path, value: impl Display) -> io::Result<()> {
    fs::write(path, value.to_string()).map_err(|e| named(path, e))
}

/// A failed file operation, with the file's name.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
struct Named {
    path: PathBuf,
    #[source]
    error: io::Error,
}

fn named(path: &Path, error: io::Error) -> io::Error {
    let (kind, path) = (error.kind(), path.to_owned());
    io::Error::new(kind, Named { path, error })
}

pub(super) fn number(path: &Path) -> io::Result<u64> {
    let text = read(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("{}: {text:?}", path.display())))
}

/// The number after `key` in a file of `key number` lines.
pub(super) fn keyed(path: &Path, key: &str) -> io::Result<u64> {
    value_of(&read(path)?, key)
        .ok_or_else(|| io::Error::other(format!("{}: no {key}", path.display())))
}

pub(super) fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

/// Limits memory, and memory plus swap to the same value where swap is counted (cgroup v1). The
/// second limit may never be below the first, so it is raised first and lowered last.
///
/// # Errors
/// When the kernel refuses, as it does below the current usage.
pub(super) fn limit_memory_v1(group: &Path, bytes: u64) -> io::Result<()> {
    let memory = group.join("memory.limit_in_bytes");
    let with_swap = group.join("memory.memsw.limit_in_bytes");
    if !with_swap.exists() {
        return write(&memory, bytes);
    }
    let (first, second) = if bytes > number(&with_swap)? {
        (with_swap, memory)
    } else {
        (memory, with_swap)
    };
    write(&first, bytes)?;
    write(&second, bytes)
}

/// Enables the controllers of `root` on every level down to the parent of `group` (cgroup v2).
///
/// # Errors
/// When the kernel refuses, as it does if an inner group has processes.
pub(super) fn delegate(root: &Path, group: &Path) -> io::Result<()> {
    let Some(parent) = group.parent() else {
        return Ok(());
    };
    fs::create_dir_all(parent)?;
    let mut level = root.to_owned();
    let below = parent.strip_prefix(root).unwrap_or(Path::new(""));
    for step in std::iter::once(Path::new("")).chain(below.iter().map(Path::new)) {
        level.push(step);
        let offered = read(&level.join("cgroup.controllers"))?;
        let wanted: String = offered
            .split_whitespace()
            .filter(|name| matches!(*name, "cpu" | "memory" | "pids"))
            .map(|name| format!("+{name} "))
            .collect();
        write(&level.join("cgroup.subtree_control"), wanted.trim_end())?;
    }
    Ok(())
}

/// Removes a group and the groups below it. Idempotent.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::yield_now(),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(named(path, error));
            }
            _ => return Ok(()),
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("{} is still busy", path.display()),
    ))
}
