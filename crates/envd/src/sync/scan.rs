//! Looks of a watch: at one path, or at a directory with all below it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{Dir, FileType, OFlags, Stat};
use shoal_protocol::sync::WatchLine;
use shoal_session_files::gitignore::{self, TooMuch};
use shoal_session_files::path::SessionPath;
use shoal_session_files::returning;

use super::contents::{self, Stamp, digest_of, is_executable};
use super::home::{self, PathError, is_regular};
use super::watcher::{LOOKED, WatchEnd, Watcher};

impl Watcher {
    /// Looks at one path in this directory, at which something happened.
    pub(super) fn look_at(&mut self, up: &OwnedFd, path: &SessionPath) -> Result<(), WatchEnd> {
        let directory = home::parent(path);
        if !self.notifier.contains(directory) {
            // It does not return, or its end was reported.
            return Ok(());
        }
        if path.name() == gitignore::NAME && self.rules_changed(up, path) {
            let directory = directory.to_owned();
            let begun = Instant::now();
            self.scan(&directory, false)?;
            let now = Instant::now();
            self.dirty.looked(path, now - begun, now);
        }
        let found = home::look(up, path.name()).ok();
        let is_directory = found.is_some_and(|stat| kind(&stat) == FileType::Directory);
        if !is_directory {
            if self.notifier.remove(path.as_str()) {
                self.forget_rules();
            }
            // Files may have been written below it from outside before it was looked at for the first time.
            self.forget_below(path)?;
        }
        match found {
            Some(stat) if is_regular(&stat) => self.examine(up, path, &stat),
            Some(_) if is_directory => {
                self.gone(path)?;
                if self.enters(path) {
                    self.scan(path.as_str(), true)
                } else {
                    Ok(())
                }
            }
            _ => self.gone(path),
        }
    }

    /// Looks at a directory, whose own directories are not ignored, and at all below it.
    ///
    /// In a `new` directory files may be in the middle of being written, so that they wait like others.
    pub(super) fn scan(&mut self, top: &str, new: bool) -> Result<(), WatchEnd> {
        let scan = {
            let mut table = self.table.lock();
            table.scan += 1;
            table.scan
        };
        let mut rest = vec![top.to_owned()];
        while let Some(directory) = rest.pop() {
            self.check()?;
            let open = match self.home.list(&directory) {
                Ok(open) => open,
                Err(PathError::System { source, .. }) => {
                    let path = directory.parse().ok();
                    self.limit(path, format!("the directory cannot be read: {source}"))?;
                    continue;
                }
                // It is gone, which its directory's events report.
                Err(_) => continue,
            };
            // Watch before reading, so that no change is missed.
            let full = self.path.join(&directory);
            self.notifier.add(&directory, open.as_fd(), &full, scan)?;
            self.read_rules(&open, &directory)?;
            self.list(&open, &directory, new, &mut rest)?;
        }
        self.notifier.remove_unseen(top, scan);
        self.forget_rules();
        let unseen = self.table.lock().unseen(top);
        for path in unseen {
            self.lost(&path)?;
        }
        Ok(())
    }

    /// Looks at the entries of one directory. Directories below it are added to `rest`.
    fn list(
        &mut self,
        open: &OwnedFd,
        directory: &str,
        new: bool,
        rest: &mut Vec<String>,
    ) -> Result<(), WatchEnd> {
        let Ok(entries) = Dir::read_from(open) else {
            return Ok(());
        };
        let mut files = Vec::new();
        for entry in entries {
            // After an error, events report the other entries.
            let Ok(entry) = entry else {
                break;
            };
            let name = entry.file_name().to_str();
            // Names that are no UTF-8, control characters, too deep: none of it returns.
            let path = name
                .ok()
                .and_then(|name| SessionPath::join(directory, name).ok());
            let Some(path) = path else {
                continue;
            };
            match entry.file_type() {
                FileType::Directory if self.enters(&path) => rest.push(path.into()),
                FileType::RegularFile | FileType::Unknown => files.push(path),
                _ => {}
            }
            if files.len() >= LOOKED {
                self.look_in(open, std::mem::take(&mut files), new, rest)?;
            }
        }
        self.look_in(open, files, new, rest)
    }

    /// Looks at some entries of one directory. They may be directories.
    fn look_in(
        &mut self,
        open: &OwnedFd,
        mut paths: Vec<SessionPath>,
        new: bool,
        rest: &mut Vec<String>,
    ) -> Result<(), WatchEnd> {
        if new {
            // The server creates directories when it writes many files.
            paths = self.urgent(paths, Instant::now());
        }
        for path in paths {
            let Ok(stat) = home::look(open, path.name()) else {
                continue;
            };
            if kind(&stat) == FileType::Directory && self.enters(&path) {
                rest.push(path.into());
            } else if is_regular(&stat) {
                self.compare(open, &path, &stat, new)?;
            }
        }
        Ok(())
    }

    /// Looks at a file unless it is known to be unchanged.
    fn compare(
        &mut self,
        up: &OwnedFd,
        path: &SessionPath,
        stat: &Stat,
        new: bool,
    ) -> Result<(), WatchEnd> {
        if !self.may_return(path, stat) {
            // It was known under other rules, or not at all.
            return Ok(());
        }
        let (stamp, executable) = (Stamp::of(stat), is_executable(stat));
        let unchanged = self.table.lock().is_unchanged(path, &stamp, executable);
        if unchanged {
            return Ok(());
        }
        if new {
            self.table.lock().keep(path);
            self.dirty.note(path.clone(), false, Instant::now());
            return Ok(());
        }
        self.examine(up, path, stat)
    }

    /// Reads a regular file, and reports a change.
    fn examine(&mut self, up: &OwnedFd, path: &SessionPath, stat: &Stat) -> Result<(), WatchEnd> {
        if !self.may_return(path, stat) {
            let told = self.table.lock().withheld(path);
            return self.tell(told);
        }
        let begun = Instant::now();
        let table = self.table.clone();
        let mut table = table.lock();
        let read = match home::open_seen(up, path, OFlags::RDONLY) {
            Ok((file, stat)) => contents::read(&file, &stat, path),
            Err(PathError::System { source, .. }) => Err(source),
            Err(_) => {
                let told = table.gone(path);
                return self.tell(told);
            }
        };
        let now = Instant::now();
        let told = match read {
            Ok(Some(known)) => {
                self.dirty.looked(path, now - begun, now);
                table.found(path, known)?
            }
            Ok(None) => {
                table.keep(path);
                self.dirty.looked_in_vain(path, now - begun, now);
                None
            }
            Err(error) => {
                let told = table.withheld(path);
                drop(table);
                self.limit(Some(path.clone()), error.to_string())?;
                return self.tell(told);
            }
        };
        drop(table);
        self.tell(told)
    }

    /// A file that a scan has not seen: it is gone, or does not return any more.
    fn lost(&mut self, path: &SessionPath) -> Result<(), WatchEnd> {
        let up = self.home.parent(path).ok();
        let found = up.and_then(|up| home::look(&up, path.name()).ok());
        let is_there = found.is_some_and(|stat| is_regular(&stat));
        let mut table = self.table.lock();
        let told = if is_there {
            table.withheld(path)
        } else {
            table.gone(path)
        };
        drop(table);
        self.tell(told)
    }

    fn gone(&mut self, path: &SessionPath) -> Result<(), WatchEnd> {
        let told = self.table.lock().gone(path);
        self.tell(told)
    }

    /// Forgets the files of a directory that is gone.
    fn forget_below(&mut self, directory: &SessionPath) -> Result<(), WatchEnd> {
        let below = self.table.lock().below(directory.as_str());
        for path in below {
            self.gone(&path)?;
        }
        Ok(())
    }

    /// Forgets the rules of directories that are not watched any more.
    fn forget_rules(&mut self) {
        let (notifier, rules) = (&self.notifier, &mut self.rules);
        self.ignore_files.retain(|directory, _| {
            let stays = notifier.contains(directory);
            if !stays {
                rules.forget(directory);
            }
            stays
        });
    }

    fn tell(&mut self, line: Option<WatchLine>) -> Result<(), WatchEnd> {
        line.map_or(Ok(()), |line| self.output.tell(&line))
    }

    fn enters(&self, path: &SessionPath) -> bool {
        returning::enters(path.name()) && !self.rules.ignores_entry(path, true)
    }

    fn may_return(&self, path: &SessionPath, stat: &Stat) -> bool {
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        returning::may_return(path, size, self.file_max) && !self.rules.ignores_entry(path, false)
    }

    /// Reads the `.gitignore` of a directory.
    fn read_rules(&mut self, open: &OwnedFd, directory: &str) -> Result<(), WatchEnd> {
        let Ok(file) = SessionPath::join(directory, gitignore::NAME) else {
            return Ok(());
        };
        let text = ignore_text(open, &file);
        let digest = text.as_deref().map(digest_of);
        if self.ignore_files.get(directory) == digest.as_ref() {
            return Ok(());
        }
        match digest {
            Some(digest) => self.ignore_files.insert(directory.to_owned(), digest),
            None => self.ignore_files.remove(directory),
        };
        let set: Result<(), TooMuch> = self.rules.set(directory, text.as_deref());
        match set {
            Ok(()) => Ok(()),
            Err(error) => {
                let reason = format!("nothing returns from there: {error}");
                self.limit(directory.parse().ok(), reason)
            }
        }
    }

    fn rules_changed(&self, up: &OwnedFd, path: &SessionPath) -> bool {
        let digest = ignore_text(up, path).as_deref().map(digest_of);
        self.ignore_files.get(home::parent(path)) != digest.as_ref()
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The text of a `.gitignore`, and a byte more than is read when it is too long. A link or a file that cannot be read is none.
fn ignore_text(directory: &OwnedFd, path: &SessionPath) -> Option<Vec<u8>> {
    use std::io::Read as _;

    let (file, _) = home::open(directory, path, OFlags::RDONLY).ok()?;
    let mut text = Vec::new();
    let most = gitignore::FILE_MAX as u64 + 1;
    file.take(most).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use shoal_protocol::sync::AppliedLine;
    use shoal_protocol::sync::frame::{Change, Head, Write};
    use tokio::sync::mpsc;

    use super::super::apply::Applier;
    use super::super::control::Control;
    use super::super::home::Home;
    use super::super::table::{Counter, Table};
    use super::*;

    #[test]
    fn a_file_from_outside_is_told_as_gone_though_its_new_directory_was_never_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let home = || Home::open(dir.path(), rustix::process::geteuid().as_raw()).unwrap();
        let counter = Counter::default();
        let table = Arc::new(Mutex::new(Table::new(counter.clone())));
        let (sender, mut lines) = mpsc::channel(4);
        let control = Arc::new(Control::new().unwrap());
        let path = dir.path().to_owned();
        let mut watcher = Watcher::new(home(), path, 1 << 20, table.clone(), control, sender);
        watcher.scan("", false).unwrap();
        let change = Change {
            head: Head {
                path: "a/b/c".parse().unwrap(),
                expected: None,
                write: Some(Write {
                    size: 1,
                    executable: false,
                }),
            },
            contents: b"1".to_vec(),
        };
        let mut applier = Applier::new(home(), Some(table), counter);
        applier.apply(&change);
        let outcomes = applier.finish();
        assert!(matches!(outcomes[..], [AppliedLine::Done { .. }]));
        std::fs::rename(dir.path().join("a"), dir.path().join("d")).unwrap();
        watcher.read_events();
        for _ in 0..2 {
            let all = watcher.dirty.take_all();
            watcher.look_at_all(all).unwrap();
        }
        watcher.output.send().unwrap();
        let told = String::from_utf8(lines.try_recv().unwrap().to_vec()).unwrap();
        let has = |event: &str, path: &str| {
            let mut lines = told.lines();
            lines.any(|line| line.contains(event) && line.contains(path))
        };
        assert!(
            has("absent", "\"a/b/c\"") && has("present", "\"d/b/c\""),
            "{told}"
        );
    }
}
