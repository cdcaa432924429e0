//! The watched directories of a home, and the kernel's events about them.
//!
//! The kind of an event hardly matters: the watcher looks at the path anyway. When the kernel has no watches left, the
//! other directories are still known, and the watcher scans everything from time to time.

use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::table::TooMany;

/// The most directories. The kernel needs about 1 KiB for each.
const DIRECTORIES_MAX: usize = 65_536;

/// Read buffer for some hundred events.
const BUFFER: usize = 16 << 10;

/// An event of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    /// Something happened at a name in a directory.
    At {
        /// The directory.
        directory: String,
        /// The name.
        name: String,
        /// Whether a file was closed or moved here, so that it is complete.
        complete: bool,
    },
    /// The kernel has lost events.
    Lost,
    /// The home is gone.
    HomeGone,
}

/// A directory.
#[derive(Debug, Clone, Copy)]
struct Directory {
    /// The number of its watch, if the kernel watches it.
    number: Option<i32>,
    /// The scan that has seen it.
    seen: u64,
}

/// The directories.
pub(super) struct Notifier {
    kernel: Option<OwnedFd>,
    directories: BTreeMap<String, Directory>,
    paths: HashMap<i32, String>,
    unwatched: usize,
}

impl Notifier {
    /// A notifier without directories.
    pub(super) fn new() -> Self {
        Self {
            kernel: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok(),
            directories: BTreeMap::new(),
            paths: HashMap::new(),
            unwatched: 0,
        }
    }

    /// A notifier without events.
    #[cfg(test)]
    pub(super) fn blind() -> Self {
        Self {
            kernel: None,
            ..Self::new()
        }
    }

    /// Becomes readable when there are events.
    pub(super) fn fd(&self) -> Option<&OwnedFd> {
        self.kernel.as_ref()
    }

    /// Whether there are directories that the kernel does not watch.
    pub(super) fn is_partial(&self) -> bool {
        self.unwatched > 0
    }

    /// Whether a directory is known.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.directories.contains_key(path)
    }

    /// Watches an open directory. `full` is its path, for systems without `/proc`.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn add(
        &mut self,
        path: &str,
        open: BorrowedFd<'_>,
        full: &Path,
        scan: u64,
    ) -> Result<(), TooMany> {
        let number = self.watch(open, full);
        let old = self.directories.get(path).and_then(|old| old.number);
        if let Some(old) = old
            && Some(old) != number
        {
            self.unwatch(old, path);
        }
        // The same directory may have been known at another path.
        if let Some(number) = number
            && let Some(before) = self.paths.insert(number, path.to_owned())
            && before != path
            && let Some(moved) = self.directories.get_mut(&before)
        {
            moved.number = None;
        }
        let seen = scan;
        self.directories
            .insert(path.to_owned(), Directory { number, seen });
        self.count();
        if self.directories.len() > DIRECTORIES_MAX {
            return Err(TooMany);
        }
        Ok(())
    }

    fn watch(&self, open: BorrowedFd<'_>, full: &Path) -> Option<i32> {
        let kernel = self.kernel.as_ref()?;
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        // Through the descriptor, so that it is this directory even if its path now leads elsewhere.
        let descriptor = format!("/proc/self/fd/{}", open.as_raw_fd());
        match inotify::add_watch(kernel, &descriptor, flags) {
            Ok(number) => Some(number),
            Err(Errno::NOENT) => {
                inotify::add_watch(kernel, full, flags | WatchFlags::DONT_FOLLOW).ok()
            }
            Err(_) => None,
        }
    }

    fn unwatch(&mut self, number: i32, path: &str) {
        // It may have been found at another path since.
        if self.paths.get(&number).is_some_and(|known| known == path) {
            self.paths.remove(&number);
            if let Some(kernel) = &self.kernel {
                // The kernel may have dropped it with the directory.
                let _ = inotify::remove_watch(kernel, number);
            }
        }
    }

    fn count(&mut self) {
        self.unwatched = self.directories.len() - self.paths.len().min(self.directories.len());
    }

    /// Forgets a directory and those below it. Returns whether it was known.
    pub(super) fn remove(&mut self, path: &str) -> bool {
        self.remove_where(path, |_| true)
    }

    /// Forgets those that a scan has not seen, of a directory and those below it.
    pub(super) fn remove_unseen(&mut self, path: &str, scan: u64) {
        self.remove_where(path, |seen| seen != scan);
    }

    fn remove_where(&mut self, path: &str, goes: impl Fn(u64) -> bool) -> bool {
        let below = format!("{path}/");
        let within = |known: &str| path.is_empty() || known == path || known.starts_with(&below);
        let from = self.directories.range(path.to_owned()..);
        // Names between a directory and those below it begin with its path, too.
        let near = from.take_while(|(known, _)| known.starts_with(path));
        let gone: Vec<(String, Directory)> = near
            .filter(|(known, directory)| within(known) && goes(directory.seen))
            .map(|(known, directory)| (known.clone(), *directory))
            .collect();
        for (known, directory) in &gone {
            self.directories.remove(known);
            if let Some(number) = directory.number {
                self.unwatch(number, known);
            }
        }
        self.count();
        !gone.is_empty()
    }

    /// Reads the pending events.
    pub(super) fn read(&mut self, mut told: impl FnMut(Noticed)) {
        let Some(kernel) = self.kernel.take() else {
            return;
        };
        let mut buffer = [const { MaybeUninit::uninit() }; BUFFER];
        let mut reader = Reader::new(&kernel, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes());
                    if let Some(noticed) = self.translate(event.wd(), event.events(), name) {
                        told(noticed);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    told(Noticed::Lost);
                    break;
                }
            }
        }
        self.kernel = Some(kernel);
    }

    fn translate(&mut self, number: i32, flags: ReadFlags, name: Option<&[u8]>) -> Option<Noticed> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Some(Noticed::Lost);
        }
        if flags.contains(ReadFlags::IGNORED) {
            if let Some(path) = self.paths.remove(&number)
                && let Some(directory) = self.directories.get_mut(&path)
            {
                directory.number = None;
            }
            self.count();
            return None;
        }
        let directory = self.paths.get(&number)?;
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
            // The parent has the events of other directories.
            let home_gone = directory.is_empty() && flags.intersects(gone);
            return home_gone.then_some(Noticed::HomeGone);
        };
        // Other names never return.
        let name = std::str::from_utf8(name).ok()?.to_owned();
        let complete = flags.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO)
            || (flags.contains(ReadFlags::ISDIR) && flags.contains(ReadFlags::CREATE));
        Some(Noticed::At {
            directory: directory.clone(),
            name,
            complete,
        })
    }
}
