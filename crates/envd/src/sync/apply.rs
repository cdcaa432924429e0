//! Applies changes from the server to a home directory.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use shoal_protocol::sync::frame::Change;
use shoal_protocol::sync::{AppliedLine, FoundLine};
use shoal_session_files::path::SessionPath;
use shoal_session_files::state::FileState;

use super::contents::{self, Known, Stamp, digest_of};
use super::home::{self, Home, PathError};
use super::run::Run;
use super::table::{Counter, Table};
use super::write::{create, overwrite};

/// How many times a change is retried when the file changes concurrently.
const ATTEMPTS: usize = 3;

/// How many changes in one request are many: probably another request follows.
const MANY: usize = 64;

/// How long the server takes from one change to the next.
const GAP: Duration = Duration::from_millis(200);

/// The maximum length of an error message, in characters.
const MESSAGE_MAX: usize = 256;

/// Applies changes to one home directory.
pub(super) struct Applier {
    home: Home,
    /// The table that the watch shares, if a watch runs.
    table: Option<Arc<Mutex<Table>>>,
    counter: Counter,
    /// Directories that lost files, and may be empty.
    emptied: BTreeSet<SessionPath>,
    /// The directory of the last change.
    run: Option<Run>,
    /// What became of each change.
    outcomes: Vec<AppliedLine>,
}

/// The outcome of one attempt.
pub(super) enum Attempt {
    /// The path has the requested contents.
    Done(Option<Known>),
    /// The path has other contents than the change expects.
    Differs(Option<FileState>),
    /// The file changed during the attempt.
    Again,
}

impl Applier {
    pub(super) fn new(home: Home, table: Option<Arc<Mutex<Table>>>, counter: Counter) -> Self {
        Self {
            home,
            table,
            counter,
            emptied: BTreeSet::new(),
            run: None,
            outcomes: Vec::new(),
        }
    }

    /// Applies a change. Blocking.
    pub(super) fn apply(&mut self, change: &Change) {
        let path = &change.head.path;
        if self.run.as_ref().is_some_and(|run| !run.has(path)) {
            self.end_run();
        }
        let outcome = self.outcome(change);
        if let (AppliedLine::Done { .. }, Some(run)) = (&outcome, &mut self.run) {
            run.changed(self.outcomes.len(), path.clone());
        }
        self.outcomes.push(outcome);
        if self.outcomes.len() >= MANY
            && let Some(table) = &self.table
        {
            table.lock().expect_more(Instant::now() + GAP);
        }
    }

    /// Removes the directories that removals emptied, and tells what became of each change. Blocking.
    pub(super) fn finish(mut self) -> Vec<AppliedLine> {
        self.end_run();
        self.prune(None);
        self.outcomes
    }

    fn outcome(&mut self, change: &Change) -> AppliedLine {
        let table = self.table.clone();
        for _ in 0..ATTEMPTS {
            // A directory that was open for a while may be gone.
            let reused = self.run.as_ref().is_some_and(|run| !run.is_new());
            let mut locked = table.as_deref().map(Mutex::lock);
            match self.attempt(change, locked.as_deref()) {
                Ok(Attempt::Done(known)) => {
                    let at = match &mut locked {
                        Some(table) => table.written(&change.head.path, known),
                        None => self.counter.next(),
                    };
                    return AppliedLine::Done { at };
                }
                Ok(Attempt::Again) => {}
                Ok(Attempt::Differs(_)) | Err(_) if reused => {}
                Ok(Attempt::Differs(state)) => return AppliedLine::Differs { state },
                Err(error) => return failed(&error.to_string()),
            }
            drop(locked);
            self.end_run();
        }
        failed(&format!("{} changes all the time", change.head.path))
    }

    /// Closes the directory of the last changes. Those that were made elsewhere count as not made.
    fn end_run(&mut self) {
        let Some(run) = self.run.take() else {
            return;
        };
        for (number, path) in run.end(&self.home) {
            if let Some(table) = &self.table {
                table.lock().written(&path, None);
            }
            if let Some(outcome) = self.outcomes.get_mut(number) {
                *outcome = AppliedLine::Differs { state: None };
            }
        }
    }

    fn attempt(&mut self, change: &Change, table: Option<&Table>) -> Result<Attempt, PathError> {
        let head = &change.head;
        let path = &head.path;
        let run = match self.run.take() {
            Some(run) => run,
            None => match (
                Run::open(&self.home, path, false),
                head.write,
                head.expected,
            ) {
                (Err(PathError::Missing(_)), None, _) => return Ok(Attempt::Done(None)),
                (Err(PathError::Missing(_)), _, Some(_)) => return Ok(Attempt::Differs(None)),
                (Err(PathError::Missing(_)), Some(_), None) => Run::open(&self.home, path, true)?,
                (run, ..) => run?,
            },
        };
        let attempt = self.attempt_in(run.directory(), change, table);
        self.run = Some(run);
        attempt
    }

    fn attempt_in(
        &mut self,
        up: &OwnedFd,
        change: &Change,
        table: Option<&Table>,
    ) -> Result<Attempt, PathError> {
        let (head, contents) = (&change.head, change.contents.as_slice());
        let path = &head.path;
        let wanted = head.write.map(|write| FileState {
            digest: digest_of(contents),
            size: contents.len() as u64,
            executable: write.executable,
        });
        if let (Some(wanted), None) = (wanted, head.expected)
            && let Some(done) = create(up, path, wanted, contents)?
        {
            return Ok(Attempt::Done(Some(done)));
        }
        let current = match self.current(up, path, head.write.is_some(), table)? {
            Current::Nothing => None,
            Current::File(known) => Some(known),
            Current::Changing => return Ok(Attempt::Again),
        };
        let digest = current.map(|known| known.state.digest);
        if wanted.map(|wanted| wanted.digest) != digest && digest != head.expected {
            return Ok(Attempt::Differs(current.map(|known| known.state)));
        }
        match (current, wanted) {
            (None, None) => Ok(Attempt::Done(None)),
            (Some(known), Some(wanted)) if known.state == wanted => Ok(Attempt::Done(Some(known))),
            (Some(known), Some(wanted)) => overwrite(up, path, &known, wanted, contents),
            (None, Some(wanted)) => {
                let made = create(up, path, wanted, contents)?;
                Ok(made.map_or(Attempt::Again, |known| Attempt::Done(Some(known))))
            }
            (Some(known), None) => self.remove(up, path, &known),
        }
    }

    /// The current file at the path.
    fn current(
        &mut self,
        up: &OwnedFd,
        path: &SessionPath,
        writes: bool,
        table: Option<&Table>,
    ) -> Result<Current, PathError> {
        match home::look(up, path.name()) {
            Err(Errno::NOENT) => return Ok(Current::Nothing),
            Ok(stat) if writes && home::describe(&stat) == "a directory" => {
                // It may be a directory whose last file was just removed.
                self.prune(Some(path));
            }
            _ => {}
        }
        let (file, stat) = match home::open(up, path, OFlags::RDONLY) {
            Ok(opened) => opened,
            Err(PathError::Missing(_)) => return Ok(Current::Nothing),
            Err(error) => return Err(error),
        };
        let stamp = Stamp::of(&stat);
        if let Some(known) = table.and_then(|table| table.known(path, &stamp)) {
            return Ok(Current::File(known));
        }
        let read = contents::read(&file, &stat, path);
        let read = read.map_err(|error| PathError::system(path.as_str(), error))?;
        Ok(read.map_or(Current::Changing, Current::File))
    }

    fn remove(
        &mut self,
        up: &OwnedFd,
        path: &SessionPath,
        known: &Known,
    ) -> Result<Attempt, PathError> {
        let failed = |errno| PathError::system(path.as_str(), errno);
        let stat = home::look(up, path.name());
        if !stat.is_ok_and(|stat| Stamp::of(&stat) == known.stamp) {
            return Ok(Attempt::Again);
        }
        rustix::fs::unlinkat(up, path.name(), AtFlags::empty()).map_err(failed)?;
        self.emptied.extend(path.parents().next());
        Ok(Attempt::Done(None))
    }

    /// Removes directories that removals emptied: those at or below a path, or all.
    fn prune(&mut self, within: Option<&SessionPath>) {
        let mut left = BTreeSet::new();
        // A child sorts after its directory.
        while let Some(directory) = self.emptied.pop_last() {
            if within.is_some_and(|within| !directory.is_within(within)) {
                left.insert(directory);
            } else if self.home.remove_directory(&directory).is_ok() {
                self.emptied.extend(directory.parents().next());
            }
        }
        self.emptied = left;
    }
}

/// The state of a path before a change.
enum Current {
    Nothing,
    File(Known),
    Changing,
}

fn failed(message: &str) -> AppliedLine {
    let message = message.chars().take(MESSAGE_MAX).collect();
    AppliedLine::Failed { message }
}

/// The state of a path. Blocking.
pub(super) fn look(home: &Home, path: &SessionPath) -> FoundLine {
    let other = |message: &str| FoundLine::Other {
        message: message.chars().take(MESSAGE_MAX).collect(),
    };
    for _ in 0..ATTEMPTS {
        let opened = home
            .parent(path)
            .and_then(|up| home::open(&up, path, OFlags::RDONLY));
        let (file, stat) = match opened {
            Ok(opened) => opened,
            Err(PathError::Missing(_)) => return FoundLine::Nothing,
            // A path below a file or a link does not exist.
            Err(PathError::InTheWay { at, .. }) if at != path.as_str() => {
                return FoundLine::Nothing;
            }
            Err(error) => return other(&error.to_string()),
        };
        match contents::read(&file, &stat, path) {
            Ok(Some(known)) => return FoundLine::File { state: known.state },
            Ok(None) => {}
            Err(error) => return other(&error.to_string()),
        }
    }
    other("it changes all the time")
}

#[cfg(test)]
mod tests {
    use shoal_protocol::sync::frame::{Head, Write};

    use super::*;

    fn new_file(path: &str) -> Change {
        let write = Write {
            size: 1,
            executable: false,
        };
        Change {
            head: Head {
                path: path.parse().unwrap(),
                expected: None,
                write: Some(write),
            },
            contents: b"1".to_vec(),
        }
    }

    fn applier(directory: &std::path::Path) -> Applier {
        let home = Home::open(directory, rustix::process::geteuid().as_raw()).unwrap();
        Applier::new(home, None, Counter::default())
    }

    #[test]
    fn what_is_written_into_a_directory_that_moves_meanwhile_counts_as_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut applier = applier(dir.path());
        for path in ["d/a", "d/b"] {
            applier.apply(&new_file(path));
        }
        std::fs::rename(dir.path().join("d"), dir.path().join("e")).unwrap();
        for path in ["d/c", "f/a"] {
            applier.apply(&new_file(path));
        }
        let [a, b, c, other] = &applier.finish()[..] else {
            panic!("another number of outcomes");
        };
        for outcome in [a, b, c] {
            assert_eq!(*outcome, AppliedLine::Differs { state: None });
        }
        assert!(matches!(other, AppliedLine::Done { .. }), "{other:?}");
        assert!(
            dir.path().join("e/c").exists(),
            "it is where the directory is"
        );
    }

    #[test]
    fn a_directory_that_is_removed_meanwhile_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut applier = applier(dir.path());
        applier.apply(&new_file("d/a"));
        std::fs::remove_dir_all(dir.path().join("d")).unwrap();
        applier.apply(&new_file("d/b"));
        let [gone, made] = &applier.finish()[..] else {
            panic!("another number of outcomes");
        };
        assert_eq!(*gone, AppliedLine::Differs { state: None });
        assert!(matches!(made, AppliedLine::Done { .. }), "{made:?}");
        assert!(dir.path().join("d/b").exists());
    }
}
