//! Change notification through inotify.
//!
//! inotify watches single directories, so a recursive watch adds every directory in the tree,
//! including new ones. Entries created in a new directory before its watch exists are found by a
//! scan and reported as created. The kernel may report some of them again; such duplicates are
//! dropped.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use shoal_protocol::filesystem::{EventType, FilesystemEvent};
use tokio::sync::{mpsc, oneshot};

use super::{FileError, entry};
use crate::polled::Polled;
use crate::user::{Directory, Users};

/// Limit of directories per watch. The kernel needs about 1 KiB for each.
const MAX_DIRECTORIES: usize = 65_536;

/// Events per batch, after which other tasks may run.
const BATCH_SIZE: usize = 512;

/// Read buffer for some hundred inotify events.
const BUFFER_SIZE: usize = 16 << 10;

/// Magic numbers of file systems with remote changes that inotify misses: NFS, three of SMB, and
/// FUSE.
const NETWORK: [u64; 5] = [0x6969, 0xFF53_4D42, 0x517B, 0xFE53_4D42, 0x6573_5546];

/// Watch options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Options {
    /// Includes all subdirectories.
    pub(super) recursive: bool,
    /// Adds a description of the entry to each event.
    pub(super) include_entry: bool,
    /// Permits network file systems.
    pub(super) allow_network: bool,
}

/// A change, or the error that ends the watch.
pub(super) type WatchResult = Result<FilesystemEvent, FileError>;

/// A request to flush, answered once all changes up to now are sent.
pub(super) type FlushRequest = oneshot::Sender<()>;

/// A watch on a directory or a tree.
pub(super) struct Watch {
    kernel: Arc<OwnedFd>,
    root: PathBuf,
    options: Options,
    /// Watched directories by watch descriptor, relative to the root.
    directories: HashMap<i32, PathBuf>,
    /// Entries found by a scan, which the kernel may report again.
    found: HashSet<PathBuf>,
}

/// A change, relative to the root.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    path: PathBuf,
    kind: EventType,
}

impl Watch {
    /// Starts a watch.
    ///
    /// # Errors
    /// If the path is missing, not a directory, on a network file system, or too large.
    pub(super) fn open(root: &Path, options: Options) -> Result<Self, FileError> {
        let meta = std::fs::metadata(root);
        let meta = meta.map_err(|error| FileError::new("stat", root, error))?;
        if !meta.is_dir() {
            return Err(FileError::NotDirectory(root.to_owned()));
        }
        if !options.allow_network && is_network(root)? {
            return Err(FileError::Network(root.to_owned()));
        }
        let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let kernel = kernel.map_err(|error| FileError::new("watch", root, error))?;
        let mut watch = Self {
            kernel: Arc::new(kernel),
            root: root.to_owned(),
            options,
            directories: HashMap::new(),
            found: HashSet::new(),
        };
        if !watch.add(Path::new(""))? {
            return Err(FileError::NotFound(root.to_owned()));
        }
        if options.recursive {
            watch.add_below(PathBuf::new(), |_| {})?;
        }
        Ok(watch)
    }

    /// Sends changes until the receiver is dropped or the watch fails. Blocks while the receiver's
    /// queue is full; the kernel then queues some thousand events before it overflows.
    ///
    /// A flush request is answered once all changes up to then are sent.
    pub(super) async fn run(
        self,
        users: Arc<Users>,
        subscriber: mpsc::Sender<WatchResult>,
        mut flushes: mpsc::Receiver<FlushRequest>,
    ) {
        let Ok(kernel) = Polled::new(Arc::clone(&self.kernel)) else {
            return;
        };
        let mut watch = self;
        loop {
            let mut flush = None;
            tokio::select! {
                Some(request) = flushes.recv() => flush = Some(request),
                ready = kernel.readable() => match ready {
                    // The loop below drains the descriptor until EAGAIN, so no event is missed.
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
                () = subscriber.closed() => return,
            }
            let mut more = true;
            while more {
                let users = Arc::clone(&users);
                let batch = tokio::task::spawn_blocking(move || {
                    let batch = watch.next_batch(&users.directory());
                    (watch, batch)
                });
                let Ok((returned, batch)) = batch.await else {
                    return;
                };
                watch = returned;
                let events = match batch {
                    Ok((events, left)) => {
                        more = left;
                        events
                    }
                    Err(error) => {
                        let _ = subscriber.send(Err(error)).await;
                        return;
                    }
                };
                for event in events {
                    if subscriber.send(Ok(event)).await.is_err() {
                        return;
                    }
                }
            }
            // The caller may have disconnected.
            let _ = flush.map(|flush| flush.send(()));
        }
    }

    /// The next batch of changes, and whether more may be pending.
    fn next_batch(&mut self, users: &Directory) -> Result<(Vec<FilesystemEvent>, bool), FileError> {
        let mut changes = Vec::new();
        let more = self.read(&mut changes)?;
        let events = changes
            .into_iter()
            .map(|change| self.to_event(&change, users));
        Ok((events.collect(), more))
    }

    fn read(&mut self, changes: &mut Vec<Change>) -> Result<bool, FileError> {
        let kernel = Arc::clone(&self.kernel);
        let mut buffer = [const { MaybeUninit::uninit() }; BUFFER_SIZE];
        let mut reader = Reader::new(&*kernel, &mut buffer);
        loop {
            if changes.len() >= BATCH_SIZE && reader.is_buffer_empty() {
                return Ok(true);
            }
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes());
                    self.translate(event.wd(), event.events(), name, changes)?;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.found.clear();
                    return Ok(false);
                }
                Err(error) => return Err(FileError::new("watch", &self.root, error)),
            }
        }
    }

    /// Translates an inotify event.
    fn translate(
        &mut self,
        number: i32,
        flags: ReadFlags,
        name: Option<&[u8]>,
        changes: &mut Vec<Change>,
    ) -> Result<(), FileError> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Err(FileError::Lost);
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.directories.remove(&number);
            return Ok(());
        }
        let Some(directory) = self.directories.get(&number) else {
            return Ok(());
        };
        let Some(kind) = kind(flags) else {
            return Ok(());
        };
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            // An event of the directory itself. Its parent reports it too, unless it is the root.
            if directory.as_os_str().is_empty() {
                let path = PathBuf::from(".");
                changes.push(Change { path, kind });
            }
            return Ok(());
        };
        let path = directory.join(OsStr::from_bytes(name));
        let tree = self.options.recursive && flags.contains(ReadFlags::ISDIR);
        if tree && flags.contains(ReadFlags::MOVED_FROM) {
            self.unwatch_tree(&path);
        }
        let appeared = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        if appeared && self.found.remove(&path) {
            return Ok(());
        }
        changes.push(Change {
            path: path.clone(),
            kind,
        });
        if tree && appeared {
            self.adopt(path, changes)?;
        }
        Ok(())
    }

    /// Watches a new directory and reports its existing contents.
    fn adopt(&mut self, path: PathBuf, changes: &mut Vec<Change>) -> Result<(), FileError> {
        if !self.add(&path)? {
            return Ok(());
        }
        let mut found = Vec::new();
        self.add_below(path, |path| found.push(path.to_owned()))?;
        for path in found {
            let meta = std::fs::symlink_metadata(self.root.join(&path));
            let written = meta.is_ok_and(|meta| meta.is_file() && meta.len() > 0);
            self.found.insert(path.clone());
            let kinds = [EventType::EVENT_TYPE_CREATE, EventType::EVENT_TYPE_WRITE];
            let kinds = kinds.into_iter().take(if written { 2 } else { 1 });
            changes.extend(kinds.map(|kind| Change {
                path: path.clone(),
                kind,
            }));
        }
        Ok(())
    }

    /// Watches one directory. False if it no longer exists or is not a directory.
    fn add(&mut self, path: &Path) -> Result<bool, FileError> {
        let full = self.root.join(path);
        let mut flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        if !path.as_os_str().is_empty() {
            flags |= WatchFlags::DONT_FOLLOW;
        }
        match inotify::add_watch(&*self.kernel, &full, flags) {
            Ok(number) => {
                self.directories.insert(number, path.to_owned());
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(Errno::NOSPC) => return Err(self.too_many()),
            Err(error) => return Err(FileError::new("watch", full, error)),
        }
        if self.directories.len() > MAX_DIRECTORIES {
            return Err(self.too_many());
        }
        Ok(true)
    }

    /// Watches all subdirectories and visits every entry in them.
    fn add_below(&mut self, path: PathBuf, mut visit: impl FnMut(&Path)) -> Result<(), FileError> {
        let mut rest = vec![path];
        while let Some(directory) = rest.pop() {
            let Ok(names) = std::fs::read_dir(self.root.join(&directory)) else {
                continue;
            };
            for name in names.filter_map(Result::ok) {
                let path = directory.join(name.file_name());
                visit(&path);
                let is_dir = name.file_type().is_ok_and(|kind| kind.is_dir());
                if is_dir && self.add(&path)? {
                    rest.push(path);
                }
            }
        }
        Ok(())
    }

    /// Stops watching a tree that was moved away. If its new place is watched, it is added there.
    fn unwatch_tree(&mut self, path: &Path) {
        let kernel = Arc::clone(&self.kernel);
        self.directories.retain(|number, directory| {
            let gone = directory.starts_with(path);
            if gone {
                // The kernel may have dropped the watch already.
                let _ = inotify::remove_watch(&*kernel, *number);
            }
            !gone
        });
    }

    fn too_many(&self) -> FileError {
        FileError::TooMany {
            what: "directories to watch",
            limit: MAX_DIRECTORIES,
            path: self.root.clone(),
        }
    }

    /// Converts a change to an event. Removed entries are not described, because a new file may
    /// exist at the path.
    fn to_event(&self, change: &Change, users: &Directory) -> FilesystemEvent {
        let describe = self.options.include_entry
            && !matches!(
                change.kind,
                EventType::EVENT_TYPE_REMOVE | EventType::EVENT_TYPE_RENAME
            );
        let entry = describe
            .then(|| entry::describe(&self.root.join(&change.path), users).ok())
            .flatten();
        FilesystemEvent {
            name: change.path.to_string_lossy().into_owned(),
            r#type: change.kind.into(),
            entry: entry.into(),
        }
    }
}

fn kind(flags: ReadFlags) -> Option<EventType> {
    let kinds = [
        (
            ReadFlags::CREATE | ReadFlags::MOVED_TO,
            EventType::EVENT_TYPE_CREATE,
        ),
        (
            ReadFlags::MOVED_FROM | ReadFlags::MOVE_SELF,
            EventType::EVENT_TYPE_RENAME,
        ),
        (
            ReadFlags::DELETE | ReadFlags::DELETE_SELF,
            EventType::EVENT_TYPE_REMOVE,
        ),
        (ReadFlags::MODIFY, EventType::EVENT_TYPE_WRITE),
        (ReadFlags::ATTRIB, EventType::EVENT_TYPE_CHMOD),
    ];
    let mut kinds = kinds.into_iter();
    kinds.find_map(|(mask, kind)| flags.intersects(mask).then_some(kind))
}

fn is_network(path: &Path) -> Result<bool, FileError> {
    let stat = rustix::fs::statfs(path);
    let stat = stat.map_err(|error| FileError::new("stat", path, error))?;
    // A magic number has 32 bits, while the field's type varies.
    Ok(NETWORK.contains(&(stat.f_type.cast_unsigned() & 0xFFFF_FFFF)))
}

#[cfg(test)]
mod tests;
