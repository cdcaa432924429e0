//! File modes: only root may open an installation's files.
//!
//! The server's umask closes new files. Files of earlier versions, and those of an operator, are
//! corrected at each start.

use std::fs::{self, DirBuilder, File, FileType, OpenOptions, Permissions};
use std::io;
use std::ops::AddAssign;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::home::{AUTHORITY, ROOTS};

/// The mode of a directory that only its owner uses.
const CLOSED: u32 = 0o700;
/// The mode of a directory that root of a user namespace traverses, but cannot list.
const PASSAGE: u32 = 0o711;
/// The permissions of the group and of others.
const OTHERS: u32 = 0o077;

/// Directories with contents of sandboxes and images, whose modes are not ours. Only the
/// directories themselves are closed.
const NOT_OURS: [&str; 3] = ["disk", "envd", "images"];

/// How deep the data directory is corrected: `uploads/<team>/<digest>` is the deepest file.
const DEPTH: usize = 3;

/// How many corrected paths a log line names.
const NAMED: usize = 8;

/// The corrections at a start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Correction {
    count: usize,
    first: Vec<PathBuf>,
}

impl Correction {
    fn note(&mut self, path: &Path) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(path.to_owned());
        }
    }

    /// Logs in one line which files were open to other users, if any.
    pub(crate) fn log(&self) {
        if self.count > 0 {
            let paths: Vec<_> = self.first.iter().map(|p| p.display().to_string()).collect();
            tracing::warn!(
                count = self.count,
                first = paths.join(", "),
                "files were open to other users of this machine and are closed now"
            );
        }
    }
}

impl AddAssign for Correction {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        let room = NAMED.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }
}

/// Creates a directory and its parents, open only to their owner. An existing one is not changed.
///
/// # Errors
/// When the system refuses.
pub fn make(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(CLOSED).create(directory)
}

/// Closes the data directory and the server's files in it. Links are not followed, and mounts are
/// not entered.
///
/// # Errors
/// When a mode cannot be read or set.
pub(crate) fn correct(data: &Path) -> io::Result<Correction> {
    let mut corrected = Correction::default();
    let was_open = close(data, CLOSED, true, &mut corrected)?;
    let device = fs::metadata(data)?.dev();
    for (path, kind) in entries(data)? {
        let is_ours = !NOT_OURS.iter().any(|name| path.ends_with(name));
        let depth = if is_ours { DEPTH - 1 } else { 0 };
        let below = Below {
            device,
            was_open,
            depth,
        };
        close_tree(&path, kind, below, &mut corrected)?;
    }
    Ok(corrected)
}

/// Like [`correct`], for the state that a reboot clears: `machine` is shared by all installations,
/// and `run` belongs to this one. Other installations correct their own files.
///
/// # Errors
/// When a mode cannot be read or set.
pub(crate) fn correct_state(machine: &Path, run: &Path) -> io::Result<Correction> {
    let mut corrected = Correction::default();
    for passage in [machine, run, &run.join(ROOTS)] {
        close(passage, PASSAGE, true, &mut corrected)?;
    }
    let below = Below {
        device: fs::metadata(run)?.dev(),
        was_open: true,
        depth: 0,
    };
    for (path, kind) in entries(run)? {
        if !path.ends_with(ROOTS) && !path.ends_with(AUTHORITY) {
            close_tree(&path, kind, below, &mut corrected)?;
        }
    }
    let slots = machine.join("slots");
    if let Ok(metadata) = fs::symlink_metadata(&slots) {
        let below = Below { depth: 1, ..below };
        close_tree(&slots, metadata.file_type(), below, &mut corrected)?;
    }
    Ok(corrected)
}

/// The entries of a directory; empty if it does not exist.
fn entries(directory: &Path) -> io::Result<Vec<(PathBuf, FileType)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let typed = entries.map(|entry| {
        let entry = entry?;
        Ok((entry.path(), entry.file_type()?))
    });
    typed.collect()
}

/// The position in a tree that is being closed.
#[derive(Debug, Clone, Copy)]
struct Below {
    /// The file system; others are not entered.
    device: u64,
    /// Whether other users could reach it: files in a closed directory were never open.
    was_open: bool,
    /// The remaining depth.
    depth: usize,
}

/// Closes a file or directory and everything below it.
fn close_tree(
    path: &Path,
    kind: FileType,
    below: Below,
    corrected: &mut Correction,
) -> io::Result<()> {
    let is_here = fs::symlink_metadata(path).is_ok_and(|m| m.dev() == below.device);
    if !is_here || !(kind.is_dir() || kind.is_file()) {
        return Ok(());
    }
    let was_open = close(path, CLOSED, below.was_open, corrected)? && below.was_open;
    if kind.is_dir() && below.depth > 0 {
        let inner = Below {
            depth: below.depth - 1,
            was_open,
            ..below
        };
        for (path, kind) in entries(path)? {
            close_tree(&path, kind, inner, corrected)?;
        }
    }
    Ok(())
}

/// Removes from a file or directory the permissions beyond `most`, and returns whether others could
/// traverse it before. A deleted file counts as closed; a link is left alone.
fn close(path: &Path, most: u32, was_open: bool, corrected: &mut Correction) -> io::Result<bool> {
    // Open without blocking: a pipe may have replaced the file.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Err(error) if is_gone_or_link(&error) => return Ok(false),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    let mode = metadata.mode() & 0o7777;
    // A passage must be traversable, regardless of its former mode.
    let closed = if most == PASSAGE {
        PASSAGE
    } else {
        mode & !OTHERS
    };
    let traversed = mode & 0o011 != 0;
    if mode == closed {
        return Ok(traversed);
    }
    file.set_permissions(Permissions::from_mode(closed))?;
    if was_open && mode & !closed & OTHERS != 0 {
        corrected.note(path);
    }
    Ok(traversed)
}

fn is_gone_or_link(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ELOOP)
}

/// Creates a file that only its owner may open; an existing one is truncated and closed to others.
///
/// # Errors
/// When the system refuses.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn write(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_earlier_installation_is_closed_and_its_layers_keep_their_modes() {
        let above = tempfile::tempdir().unwrap();
        let data = above.path().join("data");
        let files = [
            "lock",
            "disk.btrfs",
            "shoal.db-wal",
            "logs/ia.jsonl",
            "sandboxes/ia/config.json",
            "uploads/team/digest",
            "tls/ca.pem",
        ];
        for file in files {
            write(&data.join(file), 0o644);
        }
        let layers = ["images/layers/x/fs/bin/su", "envd/x/.shoal/envd"];
        for file in layers {
            write(&data.join(file), 0o4755);
        }
        let outside = above.path().join("outside");
        write(&outside, 0o644);
        symlink(&outside, data.join("link")).unwrap();
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();

        let corrected = correct(&data).unwrap();
        assert!(corrected.count > files.len(), "{corrected:?}");
        assert_eq!(mode(&data), 0o700);
        for file in files {
            assert_eq!(mode(&data.join(file)), 0o600, "{file}");
            assert_eq!(mode(data.join(file).parent().unwrap()), 0o700, "{file}");
        }
        for file in layers {
            assert_eq!(mode(&data.join(file)), 0o4755, "{file}");
        }
        for closed in ["images", "envd"] {
            assert_eq!(mode(&data.join(closed)), 0o700, "{closed}");
        }
        assert_eq!(mode(&outside), 0o644, "a link was followed");
        assert_eq!(correct(&data).unwrap(), Correction::default());
        write(&data.join("sandboxes/ia/pid"), 0o644);
        let within = correct(&data).unwrap();
        assert_eq!(within, Correction::default(), "it was never open");
        assert_eq!(mode(&data.join("sandboxes/ia/pid")), 0o600);
    }

    #[test]
    fn only_the_parents_of_the_mount_points_can_be_traversed() {
        let machine = tempfile::tempdir().unwrap();
        let (machine, run) = (machine.path(), machine.path().join("abcde"));
        for directory in ["roots/ia", "netns", "runsc"] {
            fs::create_dir_all(run.join(directory)).unwrap();
        }
        for file in [run.join("lock"), run.join("data"), machine.join("slots/0")] {
            write(&file, 0o644);
        }
        fs::set_permissions(machine, Permissions::from_mode(0o755)).unwrap();
        assert!(correct_state(machine, &run).unwrap().count > 0);
        for passage in [machine, &run, &run.join("roots")] {
            assert_eq!(mode(passage), 0o711, "{}", passage.display());
        }
        for closed in [run.join("netns"), run.join("runsc"), machine.join("slots")] {
            assert_eq!(mode(&closed), 0o700, "{}", closed.display());
        }
        for file in [run.join("lock"), run.join("data"), machine.join("slots/0")] {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
        assert_eq!(correct_state(machine, &run).unwrap(), Correction::default());
    }

    #[test]
    fn a_file_is_created_closed_whatever_the_umask_and_never_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lock");
        write(&file, 0o666);
        create_file(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        let link = directory.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(create_file(&link).is_err());
    }
}
