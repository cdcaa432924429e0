//! The root file system of a sandbox: shared read-only layers below its own writable directory.

mod idmap;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::chdir;

use self::idmap::Mapped;

/// The kernel reads at most one page of mount options.
const OPTIONS_MAX: usize = 4000;

/// The mode of a world-writable temporary directory.
const WORLD_WRITABLE: u32 = 0o1777;

/// The number of users in a sandbox's user namespace: as many as a distribution expects.
pub const USERS: u32 = 1 << 16;

/// The parts of a root file system.
#[derive(Debug)]
pub struct Layers<'a> {
    /// The read-only layers, topmost first.
    pub lower: &'a [PathBuf],
    /// The sandbox's own directory: its changes, and the overlay's work directory.
    pub own: &'a Path,
}

impl Layers<'_> {
    /// Creates the sandbox's own directories, with `files` below `etc`.
    ///
    /// The directory is new and empty, so no link in it can lead elsewhere.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn prepare(&self, files: &[(&str, String)]) -> io::Result<()> {
        let upper = self.upper();
        // The overlay's root takes its mode from this directory.
        make(&upper, 0o755)?;
        fs::create_dir(self.work())?;
        make(&upper.join("etc"), 0o755)?;
        // gVisor mounts a memory file system on an empty `/tmp`. Files there would count as memory,
        // and a sandbox that filled it would be OOM-killed.
        for directory in ["tmp", "tmp/.X11-unix"] {
            make(&upper.join(directory), WORLD_WRITABLE)?;
        }
        files.iter().try_for_each(|(name, text)| {
            let file = upper.join("etc").join(name);
            fs::write(&file, text)?;
            fs::set_permissions(&file, Permissions::from_mode(0o644))
        })
    }

    /// Mounts the overlay at `target`. With `first_user`, the mount maps root to that user of the
    /// machine, and the users after it accordingly.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn mount(&self, target: &Path, first_user: Option<u32>) -> io::Result<()> {
        match first_user {
            None => overlay(self.lower, &self.upper(), &self.work(), target),
            Some(first) => self.mount_mapped(target, first),
        }
    }

    fn mount_mapped(&self, target: &Path, first_user: u32) -> io::Result<()> {
        let users = idmap::UserNamespace::new(first_user)?;
        let stage = self.own.join("stage");
        fs::create_dir_all(&stage)?;
        // The staged mounts end when `_mapped` is dropped; the overlay holds its own references.
        let mut _mapped = Vec::new();
        let mut lower = Vec::new();
        for (number, layer) in self.lower.iter().enumerate() {
            let name = number.to_string();
            _mapped.push(Mapped::mount(layer, &stage.join(&name), &users)?);
            lower.push(name.into());
        }
        _mapped.push(Mapped::mount(self.own, &stage.join("own"), &users)?);
        idmap::as_user(first_user, || {
            // The sandbox sees the mount options in `/proc/mounts`. Relative paths reveal nothing
            // of this machine.
            unshare(CloneFlags::CLONE_FS)?;
            chdir(&stage)?;
            overlay(
                &lower,
                Path::new("own/upper"),
                Path::new("own/work"),
                target,
            )
        })
    }

    /// The directory of the sandbox's changes.
    pub fn upper(&self) -> PathBuf {
        self.own.join("upper")
    }

    fn work(&self) -> PathBuf {
        self.own.join("work")
    }
}

/// Creates a directory with this mode, regardless of the umask.
fn make(directory: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(mode))
}

fn overlay(lower: &[PathBuf], upper: &Path, work: &Path, target: &Path) -> io::Result<()> {
    // Descriptor paths are short, so many layers fit; they stay open until the mount exists.
    let mut held = Vec::new();
    let mut options = options_of(lower, upper, work);
    if options.len() > OPTIONS_MAX {
        held = lower
            .iter()
            .map(File::open)
            .collect::<io::Result<Vec<_>>>()?;
        let short: Vec<PathBuf> = held
            .iter()
            .map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()).into())
            .collect();
        options = options_of(&short, upper, work);
    }
    if options.len() > OPTIONS_MAX {
        return Err(io::Error::other(format!(
            "too many layers: {}",
            lower.len()
        )));
    }
    mount(
        Some("overlay"),
        target,
        Some("overlay"),
        MsFlags::empty(),
        Some(options.as_slice()),
    )?;
    drop(held);
    Ok(())
}

fn options_of(lower: &[PathBuf], upper: &Path, work: &Path) -> Vec<u8> {
    let mut options = b"lowerdir=".to_vec();
    for (number, layer) in lower.iter().enumerate() {
        if number > 0 {
            options.push(b':');
        }
        escape(&mut options, layer);
    }
    options.extend_from_slice(b",upperdir=");
    escape(&mut options, upper);
    options.extend_from_slice(b",workdir=");
    escape(&mut options, work);
    options
}

/// Appends a path, escaped so that no character ends the path or the option.
fn escape(options: &mut Vec<u8>, path: &Path) {
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b':' | b',' | b'\\') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
}

/// Unmounts every mount at or below `path`, innermost first. Idempotent.
///
/// # Errors
/// When a mount remains.
pub fn unmount_below(path: &Path) -> io::Result<()> {
    for point in mounts_below(path)?.into_iter().rev() {
        match umount2(&point, MntFlags::empty()) {
            // A busy mount is detached, and ends with its last user.
            Err(nix::errno::Errno::EBUSY) => umount2(&point, MntFlags::MNT_DETACH)?,
            Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) | Ok(()) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The mounts at or below `path`, in mount order.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn mounts_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let points = mounts.split(|byte| *byte == b'\n').filter_map(|line| {
        let point = line.split(|byte| *byte == b' ').nth(4)?;
        let point = PathBuf::from(std::ffi::OsStr::from_bytes(&unescape(point)));
        point.starts_with(path).then_some(point)
    });
    Ok(points.collect())
}

/// `mountinfo` writes blanks and backslashes as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = (byte == b'\\')
            .then(|| std::str::from_utf8(tail.get(..3)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(code);
                rest = &tail[3..];
            }
            None => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn is_root() -> bool {
        let root = nix::unistd::geteuid().is_root();
        if !root {
            eprintln!("skipped: mounts need root");
        }
        root
    }

    struct Fixture {
        directory: tempfile::TempDir,
        lower: Vec<PathBuf>,
    }

    /// The prefix of the directory's name: characters that need escaping.
    const ESCAPED: &str = "a b,c:d\\e";

    /// `layers` layers, each with a file named after its number, in a directory that needs
    /// escaping.
    fn fixture(layers: usize) -> Fixture {
        let directory = tempfile::Builder::new().prefix(ESCAPED).tempdir().unwrap();
        let lower: Vec<PathBuf> = (0..layers)
            .map(|n| directory.path().join(format!("layer{n}")))
            .collect();
        for (number, layer) in lower.iter().enumerate() {
            fs::create_dir(layer).unwrap();
            fs::write(layer.join(number.to_string()), b"x").unwrap();
            fs::write(layer.join("same"), number.to_string()).unwrap();
        }
        for name in ["own", "target"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Fixture { directory, lower }
    }

    fn mount_and_look(layers: usize, first_user: Option<u32>) {
        let fixture = fixture(layers);
        let (own, target) = (
            fixture.directory.path().join("own"),
            fixture.directory.path().join("target"),
        );
        let parts = Layers {
            lower: &fixture.lower,
            own: &own,
        };
        parts.prepare(&[("hostname", "ia\n".to_owned())]).unwrap();
        parts.mount(&target, first_user).unwrap();

        assert_eq!(
            fs::read_to_string(target.join("same")).unwrap(),
            "0",
            "the first is on top"
        );
        assert!(target.join((layers - 1).to_string()).exists());
        assert_eq!(
            fs::read_to_string(target.join("etc/hostname")).unwrap(),
            "ia\n"
        );
        for (path, mode) in [("", 0o755), ("etc", 0o755), ("etc/hostname", 0o644)] {
            let shown = fs::metadata(target.join(path)).unwrap().mode();
            assert_eq!(shown & 0o777, mode, "{path:?}");
        }
        let shown = fs::metadata(target.join("same")).unwrap().uid();
        assert_eq!(shown, first_user.unwrap_or(0));
        assert_eq!(
            mounts_below(fixture.directory.path()).unwrap(),
            [target.as_path()]
        );

        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let here = fixture.directory.path().file_name().unwrap();
        let here = here.to_str().unwrap().strip_prefix(ESCAPED).unwrap();
        let ours = mounts.lines().find(|line| line.contains(here)).unwrap();
        let options = ours.split(' ').nth(3).unwrap();
        let is_told = options.contains(here);
        assert_eq!(is_told, first_user.is_none(), "{options}");

        idmap::as_user(first_user.unwrap_or(0), || {
            fs::write(target.join("new"), b"x")?;
            fs::write(target.join("same"), "copied up")
        })
        .unwrap();
        for name in ["new", "same"] {
            assert_eq!(
                fs::metadata(own.join("upper").join(name)).unwrap().uid(),
                0,
                "{name}"
            );
        }

        unmount_below(fixture.directory.path()).unwrap();
        assert!(mounts_below(fixture.directory.path()).unwrap().is_empty());
        unmount_below(fixture.directory.path()).unwrap();
    }

    #[test]
    fn layers_are_stacked_whatever_characters_are_in_their_paths() {
        if is_root() {
            mount_and_look(3, None);
        }
    }

    #[test]
    fn many_layers_fit() {
        if is_root() {
            mount_and_look(100, None);
        }
    }

    #[test]
    fn root_on_disk_is_another_user_in_a_mapped_mount() {
        if is_root() {
            mount_and_look(2, Some(1 << 20));
        }
    }

    #[test]
    fn octal_escapes_are_read() {
        assert_eq!(unescape(br"/a\040b\134c\0"), br"/a b\c\0");
    }
}
