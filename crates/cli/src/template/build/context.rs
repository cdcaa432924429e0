//! The directory that a build takes its files from.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::ignore::{self, Ignore};
use crate::dockerfile::{CopyFiles, Source};
use crate::failure::Failure;

/// The permissions of a file whose text stands in the Dockerfile.
const INLINE_MODE: u32 = 0o644;

/// The permissions of a directory that the files make by being copied to it.
const TARGET_MODE: u32 = 0o755;

/// What is read of a file to see what it is.
const HEAD: usize = 262;

/// The directory, and what of it is left out.
#[derive(Debug)]
pub(super) struct Context {
    root: PathBuf,
    ignore: Ignore,
}

/// What is copied, by its name in the archive.
pub(super) type Entries = BTreeMap<PathBuf, Entry>;

/// Something that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// A directory with its permissions.
    Directory(u32),
    /// A file with its permissions and where it lies.
    File(u32, PathBuf),
    /// A symbolic link and what it says.
    Link(PathBuf),
    /// A text.
    Text(String),
}

/// The files of one step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gathered {
    /// What the step names as its source: a file's name, or `.`.
    pub(super) source: String,
    /// The files.
    pub(super) entries: Entries,
    /// What is neither file, directory nor link, and is not copied.
    pub(super) skipped: Vec<PathBuf>,
}

impl Context {
    /// Opens a directory, and reads what is left out of it: from `<Dockerfile>.dockerignore`, else
    /// from its own `.dockerignore`.
    ///
    /// # Errors
    /// When it is no directory, or the patterns make no sense.
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
    /// A single file keeps its name; of several, and of directories, the archive is laid out as
    /// the destination shall be, so that one step copies all of them as Docker does.
    ///
    /// # Errors
    /// What is wrong with a source, for people.
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
                // Else the directory has what the server unpacks into, which is for root alone.
                let target = Entry::Directory(TARGET_MODE);
                gathered.entries.insert(PathBuf::from("."), target);
            }
        }
        Ok(gathered)
    }

    /// What a source means, below the context: itself, or what its pattern matches.
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

    /// The names in a directory, in order.
    fn names(&self, directory: &Path) -> Result<Vec<std::ffi::OsString>, String> {
        let directory = self.root.join(directory);
        let cannot = |error| format!("cannot read {}: {error}", directory.display());
        let entries = fs::read_dir(&directory).map_err(cannot)?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<std::io::Result<Vec<_>>>().map_err(cannot)?;
        names.sort();
        Ok(names)
    }

    /// Takes a source, and says whether it is a single file.
    fn take(&self, path: &Path, unpacks: bool, gathered: &mut Gathered) -> Result<bool, String> {
        // A source that is a link means what it leads to, as long as that is in the context.
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

    /// Takes all in a directory that is not left out.
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

    /// Takes the directories above a file that was taken back.
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

/// What lies at a path; none is what cannot be copied.
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

/// The last part of a name, which must be one.
fn file_name(name: &str) -> Result<&OsStr, String> {
    let last = Path::new(name).file_name();
    last.filter(|last| last.as_bytes() == name.as_bytes())
        .ok_or_else(|| format!("{name} cannot be a file's name"))
}

/// Whether a file is what `ADD` unpacks: a tar, bare or compressed.
fn is_archive(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head));
    let magic: [&[u8]; 4] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"];
    read.is_ok()
        && (magic.iter().any(|magic| head.starts_with(magic))
            || head.get(257..).is_some_and(|rest| rest == b"ustar"))
}
