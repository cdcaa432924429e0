//! The build context: the directory that a build copies files from.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use shoal_dockerfile::{CopyFiles, Source};

use super::ignore::{self, Ignore};
use crate::failure::Failure;

/// The permissions of a file with a text from the Dockerfile.
const INLINE_MODE: u32 = 0o644;

/// The permissions of a destination directory that does not exist yet.
const TARGET_MODE: u32 = 0o755;

/// How many bytes of a file are read to detect its type.
const HEAD: usize = 262;

/// The directory, and its ignored files.
#[derive(Debug)]
pub(super) struct Context {
    root: PathBuf,
    ignore: Ignore,
}

/// Files to copy, by their names in the archive.
pub(super) type Entries = BTreeMap<PathBuf, Entry>;

/// A file to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// A directory with its permissions.
    Directory(u32),
    /// A file with its permissions and its path.
    File(u32, PathBuf),
    /// A symbolic link with its target.
    Link(PathBuf),
    /// A text.
    Text(String),
}

/// The files of one step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gathered {
    /// The source of the step: a file's name, or `.`.
    pub(super) source: String,
    /// The files.
    pub(super) entries: Entries,
    /// Special files, which are not copied.
    pub(super) skipped: Vec<PathBuf>,
}

impl Context {
    /// Opens a directory and reads its ignore file: `<Dockerfile>.dockerignore`, otherwise its
    /// `.dockerignore`.
    ///
    /// # Errors When it is not a directory, or a pattern is invalid.
    pub(super) fn open(directory: &Path, dockerfile: Option<&Path>) -> Result<Self, Failure> {
        let refused = |why: &dyn std::fmt::Display| {
            Failure::not_found(format!("the context {}: {why}", directory.display()))
        };
        let root = fs::canonicalize(directory).map_err(|error| refused(&error))?;
        if !root.is_dir() {
            return Err(refused(&"it is no directory"));
        }
        let beside = dockerfile.map(|path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".dockerignore");
            PathBuf::from(name)
        });
        for file in beside.into_iter().chain([root.join(".dockerignore")]) {
            let text = match fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Failure::other(format!("{}: {error}", file.display()))),
            };
            let ignore = Ignore::parse(&text).map_err(|(line, why)| {
                Failure::other(format!("{}:{line}: {why}", file.display()))
            })?;
            return Ok(Self { root, ignore });
        }
        let ignore = Ignore::default();
        Ok(Self { root, ignore })
    }

    /// Finds the files of a step.
    ///
    /// A single file keeps its name. For several files, or directories, the archive has the layout
    /// of the destination, so that one step copies all of them as Docker does.
    ///
    /// # Errors The problem with a source, for people.
    pub(super) fn gather(&self, files: &CopyFiles) -> Result<Gathered, String> {
        let mut gathered = Gathered {
            source: ".".to_owned(),
            entries: Entries::new(),
            skipped: Vec::new(),
        };
        let mut single = true;
        for source in &files.sources {
            match source {
                Source::Inline { name, text } => {
                    let text = Entry::Text(text.clone());
                    gathered
                        .entries
                        .insert(PathBuf::from(file_name(name)?), text);
                }
                Source::Path(path) => {
                    for found in self.find(path)? {
                        single &= self.take(&found, files.unpacks, &mut gathered)?;
                    }
                }
            }
        }
        match (single, gathered.entries.len()) {
            (true, 1) => {
                let name = gathered
                    .entries
                    .keys()
                    .next()
                    .and_then(|name| name.to_str());
                let name = name.ok_or("its name is not UTF-8")?;
                name.clone_into(&mut gathered.source);
            }
            (true, _) if !files.dest.ends_with('/') => {
                let several = gathered.entries.len();
                return Err(format!(
                    "{several} files cannot become {0}: a directory ends with a slash, {0}/",
                    files.dest
                ));
            }
            _ => {
                // Otherwise the directory has the mode of the server's staging directory, which
                // only root can read.
                let target = Entry::Directory(TARGET_MODE);
                gathered.entries.insert(PathBuf::from("."), target);
            }
        }
        Ok(gathered)
    }

    /// The paths in the context that a source refers to: itself, or the matches of its pattern.
    fn find(&self, source: &str) -> Result<Vec<PathBuf>, String> {
        let out = || format!("{source} leads out of the context {}", self.root.display());
        let path = ignore::cleaned(source).ok_or_else(out)?;
        if !ignore::is_pattern(&path) {
            let path = PathBuf::from(path);
            if self.ignore.leaves_out(&path) && !self.ignore.may_take_back() {
                return Err(format!("{source} is left out by .dockerignore"));
            }
            return Ok(vec![path]);
        }
        let mut found = vec![PathBuf::new()];
        for part in path.split('/') {
            let glob =
                ignore::glob(part).map_err(|why| format!("{source} is no pattern: {why}"))?;
            let mut deeper = Vec::new();
            for above in &found {
                if !self.root.join(above).is_dir() {
                    continue;
                }
                for name in self.names(above)? {
                    if glob.is_match(Path::new(&name)) {
                        deeper.push(above.join(name));
                    }
                }
            }
            found = deeper;
        }
        found.retain(|path| !self.ignore.leaves_out(path));
        if found.is_empty() {
            return Err(format!(
                "nothing in the context {} matches {source}",
                self.root.display()
            ));
        }
        Ok(found)
    }

    /// The names in a directory, sorted.
    fn names(&self, directory: &Path) -> Result<Vec<std::ffi::OsString>, String> {
        let directory = self.root.join(directory);
        let cannot = |error| format!("cannot read {}: {error}", directory.display());
        let entries = fs::read_dir(&directory).map_err(cannot)?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<std::io::Result<Vec<_>>>().map_err(cannot)?;
        names.sort();
        Ok(names)
    }

    /// Adds a source; returns whether it is a single file.
    fn take(&self, path: &Path, unpacks: bool, gathered: &mut Gathered) -> Result<bool, String> {
        // A symbolic link as a source means its target, if that is in the context.
        let shown = path.display();
        let real = fs::canonicalize(self.root.join(path)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{shown} is not in the context {}", self.root.display())
            }
            _ => format!("cannot read {shown}: {error}"),
        })?;
        if !real.starts_with(&self.root) {
            return Err(format!(
                "{shown} leads out of the context {}",
                self.root.display()
            ));
        }
        let meta = fs::metadata(&real).map_err(|error| format!("cannot read {shown}: {error}"))?;
        if meta.is_dir() {
            self.walk(path, &real, gathered)?;
            return Ok(false);
        }
        if self.ignore.leaves_out(path) {
            return Err(format!("{shown} is left out by .dockerignore"));
        }
        if !meta.is_file() {
            return Err(format!("{shown} is neither a file nor a directory"));
        }
        if unpacks && is_archive(&real) {
            return Err(format!(
                "{shown} is an archive, which ADD would unpack: COPY it, then RUN tar -xf"
            ));
        }
        let name = path.file_name().unwrap_or_else(|| OsStr::new("file"));
        gathered
            .entries
            .insert(PathBuf::from(name), Entry::File(mode(&meta), real));
        Ok(true)
    }

    /// Adds the files of a directory that are not ignored.
    fn walk(&self, path: &Path, real: &Path, gathered: &mut Gathered) -> Result<(), String> {
        let mut rest = vec![PathBuf::new()];
        while let Some(inside) = rest.pop() {
            let directory = real.join(&inside);
            let relative = directory
                .strip_prefix(&self.root)
                .unwrap_or(&directory)
                .to_owned();
            for name in self.names(&relative)? {
                let below = inside.join(&name);
                let full = real.join(&below);
                let meta = fs::symlink_metadata(&full)
                    .map_err(|error| format!("cannot read {}: {error}", full.display()))?;
                let out = self.ignore.leaves_out(&path.join(&below));
                if meta.is_dir() && (!out || self.ignore.may_take_back()) {
                    rest.push(below.clone());
                }
                if out {
                    continue;
                }
                if let Some(entry) = entry(&full, &meta)? {
                    self.above(real, &below, gathered)?;
                    gathered.entries.insert(below, entry);
                } else {
                    gathered.skipped.push(path.join(&below));
                }
            }
        }
        Ok(())
    }

    /// Adds the parent directories of a file that an exception pattern includes again.
    fn above(&self, real: &Path, below: &Path, gathered: &mut Gathered) -> Result<(), String> {
        for directory in below.ancestors().skip(1) {
            if directory.as_os_str().is_empty() || gathered.entries.contains_key(directory) {
                break;
            }
            let full = real.join(directory);
            let meta = fs::metadata(&full)
                .map_err(|error| format!("cannot read {}: {error}", full.display()))?;
            gathered
                .entries
                .insert(directory.to_owned(), Entry::Directory(mode(&meta)));
        }
        Ok(())
    }
}

fn mode(meta: &Metadata) -> u32 {
    meta.permissions().mode() & 0o7777
}

/// The entry of a path; `None` for a special file.
fn entry(path: &Path, meta: &Metadata) -> Result<Option<Entry>, String> {
    let kind = meta.file_type();
    Ok(if kind.is_dir() {
        Some(Entry::Directory(mode(meta)))
    } else if kind.is_file() {
        Some(Entry::File(mode(meta), path.to_owned()))
    } else if kind.is_symlink() {
        let target = fs::read_link(path);
        let target = target.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Some(Entry::Link(target))
    } else {
        None
    })
}

impl Entry {
    /// Its permissions.
    pub(super) fn mode(&self) -> u32 {
        match self {
            Self::Directory(mode) | Self::File(mode, _) => *mode,
            Self::Link(_) => 0o777,
            Self::Text(_) => INLINE_MODE,
        }
    }
}

/// The last component of a name.
fn file_name(name: &str) -> Result<&OsStr, String> {
    let last = Path::new(name).file_name();
    last.filter(|last| last.as_bytes() == name.as_bytes())
        .ok_or_else(|| format!("{name} cannot be a file's name"))
}

/// Whether a file is an archive that `ADD` unpacks: a tar, optionally compressed.
fn is_archive(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head));
    let magic: [&[u8]; 4] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"];
    read.is_ok()
        && (magic.iter().any(|magic| head.starts_with(magic))
            || head.get(257..).is_some_and(|rest| rest == b"ustar"))
}
