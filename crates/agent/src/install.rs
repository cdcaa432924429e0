//! `shoal prepare-node`: installs the runtime of pods that can be saved, and adds it to containerd's configuration.

mod config;
mod programs;
mod restart;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use shoal_checkpoint::file_digest;

pub use self::config::ConfigError;
use self::programs::{find, wrapper};
pub use self::restart::restart;

/// The directory of runsc and its wrapper, below the root.
const PROGRAMS: &str = "usr/local/lib/shoal";
/// The directory of the shim: one of containerd's path.
const SHIMS: &str = "usr/local/bin";
/// The settings of the handler's runsc.
const SETTINGS: &str = "/etc/containerd/shoal.toml";

const RUNSC: &str = "runsc";
const SHIM: &str = "containerd-shim-runsc-v1";

/// The flags.
#[derive(Clone, Debug, Args)]
pub struct InstallArgs {
    /// gVisor's runtime [default: `runsc` in PATH, or in the root's usual directories].
    #[arg(long, value_name = "FILE")]
    pub runsc: Option<PathBuf>,
    /// gVisor's shim [default: `containerd-shim-runsc-v1` there].
    #[arg(long, value_name = "FILE")]
    pub shim: Option<PathBuf>,
    /// The wrapper around runsc [default: `shoal-runsc` beside this program].
    #[arg(long, value_name = "FILE")]
    pub wrapper: Option<PathBuf>,
    /// The root of the node's file system.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// containerd's configuration, below the root.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/containerd/config.toml"
    )]
    pub config: PathBuf,
    /// Restart this unit of the node's systemd when containerd must restart: the one that runs containerd.
    #[arg(long, value_name = "UNIT")]
    pub restart: Option<String>,
    /// Print what would change, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Why a node was not prepared.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A program was not found.
    #[error("{name} is not {place}: pass its path with --{flag}{hint}")]
    Missing {
        /// The program.
        name: &'static str,
        /// The place of the search.
        place: &'static str,
        /// The flag for its path.
        flag: &'static str,
        /// A page about it.
        hint: &'static str,
    },
    /// A configuration has no place for the handler.
    #[error("{}: {error}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Why.
        error: ConfigError,
    },
    /// A configuration is a link whose target does not exist below the root.
    #[error(
        "{} is a link to {}, which does not exist below the root: pass the path of the file itself with --config",
        path.display(), target.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
        /// Its target.
        target: PathBuf,
    },
    /// The files are installed, but containerd was not restarted.
    #[error("{unit} did not restart: {message}")]
    Restart {
        /// The unit of systemd.
        unit: String,
        /// Why, and what to do.
        message: String,
    },
    /// The file system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// An installed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its path on the node.
    pub path: PathBuf,
    /// Whether it changed, or would in a dry run.
    pub changed: bool,
}

/// The result of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// All files.
    pub files: Vec<Installed>,
    /// Whether containerd must restart.
    pub restart: bool,
}

/// Prepares a node. Unchanged files are not written, so it is also the update.
///
/// Running pods keep their programs. After an update of runsc they cannot be saved.
///
/// # Errors
/// If a program is missing or containerd's configuration has no place for the handler, before anything changes; if a file
/// cannot be written.
pub fn install(args: &InstallArgs) -> Result<Report, InstallError> {
    let programs = [
        (
            find(RUNSC, "runsc", args.runsc.as_deref(), &args.root)?,
            PROGRAMS,
        ),
        (wrapper(args.wrapper.as_deref())?, PROGRAMS),
        (find(SHIM, "shim", args.shim.as_deref(), &args.root)?, SHIMS),
    ];
    let texts = [
        (
            args.config.as_path(),
            edited(args, &args.config, config::with_handler)?,
        ),
        (
            Path::new(SETTINGS),
            edited(args, Path::new(SETTINGS), config::with_settings)?,
        ),
    ];
    let mut files = Vec::new();
    for ((source, name), directory) in programs {
        let path = Path::new("/").join(directory).join(name);
        let changed = differs(&source, &below(&args.root, &path))?;
        if changed && !args.dry_run {
            let read = |into: &mut File| io::copy(&mut File::open(&source)?, into).map(drop);
            write(&below(&args.root, &path), 0o755, read)?;
        }
        files.push(Installed { path, changed });
    }
    let mut restart = restart::was_due(&args.root);
    for (path, (before, after)) in texts {
        let changed = before.as_deref() != Some(after.as_str());
        // The shim reads its own file for each pod.
        let restarts = changed && path == args.config;
        if restarts && args.restart.is_some() && !args.dry_run {
            restart::is_due(&args.root)?;
        }
        if changed && !args.dry_run {
            let place = below(&args.root, path);
            // It may contain registry passwords, so its mode stays.
            let mode =
                fs::metadata(&place).map_or(0o644, |there| there.permissions().mode() & 0o777);
            write(&place, mode, |into| into.write_all(after.as_bytes()))?;
        }
        restart |= restarts;
        files.push(Installed {
            path: path.to_owned(),
            changed,
        });
    }
    Ok(Report { files, restart })
}

/// A file of the node.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The contents of a configuration, before and after.
fn edited(
    args: &InstallArgs,
    path: &Path,
    edit: fn(&str) -> Result<String, ConfigError>,
) -> Result<(Option<String>, String), InstallError> {
    let place = below(&args.root, path);
    let before = match fs::read_to_string(&place) {
        Ok(text) => Some(text),
        // An absolute link points outside of a root that is not this process's. Writing would replace the link.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(&place) {
            Ok(target) => {
                let path = path.to_owned();
                return Err(InstallError::Link { path, target });
            }
            Err(_) => None,
        },
        Err(error) => return Err(failed(path)(error)),
    };
    let after = edit(before.as_deref().unwrap_or_default());
    let after = after.map_err(|error| InstallError::Config {
        path: path.to_owned(),
        error,
    })?;
    Ok((before, after))
}

/// Whether the installed program differs from its source, or is not executable.
fn differs(source: &Path, installed: &Path) -> Result<bool, InstallError> {
    let there = match File::open(installed) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(failed(installed)(error)),
    };
    let own = File::open(source).map_err(failed(source))?;
    let mode = there.metadata().map_err(failed(installed))?.permissions();
    // runsc must be a file: the agent does not mount the target of a link.
    let is_link = installed.is_symlink();
    let same = file_digest(&own).map_err(failed(source))?
        == file_digest(&there).map_err(failed(installed))?;
    Ok(is_link || !same || mode.mode() & 0o111 == 0)
}

/// Writes a file atomically. Running programs keep the old one.
fn write(
    path: &Path,
    mode: u32,
    fill: impl Fn(&mut File) -> io::Result<()>,
) -> Result<(), InstallError> {
    let attempt = || {
        let directory = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let unfinished = directory.join(name);
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        fill(&mut file)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    attempt().map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    |error| InstallError::Io { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root, and a directory with programs for it.
    fn places() -> [tempfile::TempDir; 2] {
        let [root, source] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for name in ["runsc", "shim", "wrapper"] {
            fs::write(source.path().join(name), name).unwrap();
        }
        [root, source]
    }

    fn args(root: &Path, source: &Path) -> InstallArgs {
        InstallArgs {
            runsc: Some(source.join("runsc")),
            shim: Some(source.join("shim")),
            wrapper: Some(source.join("wrapper")),
            root: root.to_owned(),
            config: "/etc/containerd/config.toml".into(),
            restart: None,
            dry_run: false,
        }
    }

    #[test]
    fn a_node_is_prepared_once_and_updated_later() {
        let [root, source] = places();
        let mut args = args(root.path(), source.path());
        args.dry_run = true;
        let would = install(&args).unwrap();
        assert!(would.restart && would.files.iter().all(|file| file.changed));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        let config = root.path().join("etc/containerd/config.toml");
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(&config, "version = 2\n").unwrap();
        fs::set_permissions(&config, Permissions::from_mode(0o600)).unwrap();
        args.dry_run = false;
        assert_eq!(install(&args).unwrap(), would);
        let installed = root.path().join("usr/local/lib/shoal/runsc");
        assert_eq!(fs::read_to_string(&installed).unwrap(), "runsc");
        let mode = fs::metadata(&installed).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let mode = fs::metadata(&config).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it stays closed");
        let again = install(&args).unwrap();
        assert!(!again.restart && again.files.iter().all(|file| !file.changed));

        fs::write(source.path().join("runsc"), "newer").unwrap();
        let updated = install(&args).unwrap();
        let changed: Vec<_> = updated.files.iter().filter(|file| file.changed).collect();
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].path, Path::new("/usr/local/lib/shoal/runsc"));
        assert!(!updated.restart, "the shim starts the new one");
        assert_eq!(fs::read_to_string(&installed).unwrap(), "newer");
    }

    #[test]
    fn an_interrupted_installation_is_completed_by_the_next() {
        let [root, source] = places();
        let mut args = args(root.path(), source.path());
        args.restart = Some("containerd".to_owned());
        assert!(install(&args).unwrap().restart);
        let again = install(&args).unwrap();
        assert!(again.restart, "nobody has restarted it");
        assert!(again.files.iter().all(|file| !file.changed));
    }

    #[test]
    fn the_target_of_a_link_is_not_replaced() {
        let [root, source] = places();
        let config = root.path().join("etc/containerd/config.toml");
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/nowhere/config.toml", &config).unwrap();
        let told = install(&args(root.path(), source.path())).unwrap_err();
        assert!(matches!(told, InstallError::Link { .. }), "{told}");
        assert!(config.is_symlink() && !root.path().join("usr").exists());
    }

    #[test]
    fn nothing_changes_when_something_is_missing() {
        let [root, source] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::write(source.path().join("runsc"), "").unwrap();
        fs::write(source.path().join("wrapper"), "").unwrap();
        let told = install(&args(root.path(), source.path()))
            .unwrap_err()
            .to_string();
        assert!(
            told.contains("containerd-shim-runsc-v1") && told.contains("--shim"),
            "{told}"
        );
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
