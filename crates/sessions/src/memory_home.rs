//! A home directory in memory, for tests of what uses one.
//!
//! A test does what users do inside ([`MemoryHome::write`] and others), decides when the watch reports it
//! ([`MemoryHome::tell`], or a flush), and lets calls fail ([`Fault`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use shoal_core::BoxFuture;
use shoal_core::ports::inside::home::{
    Applied, Digest, FileState, Found, HomeChange, HomeEvent, HomeEvents, HomeFile, HomeFiles,
};
use shoal_core::ports::inside::{FileContents, InsideError};
use shoal_core::session::path::SessionPath;
use shoal_core::session::returning;
use shoal_session_files::gitignore::{self, Ignoring};
use tokio::sync::mpsc;

#[cfg(test)]
mod tests;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is done.
    Before,
    /// So many changes of an `apply` are made. Any other call is done; its answer is lost.
    After(usize),
    /// So many changes are made, and of the next one so many steps: the file holds a mixture.
    Within(usize, usize),
}

/// A home directory. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct MemoryHome(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: BTreeMap<SessionPath, HomeFile>,
    watch: Option<Watch>,
    flush: u64,
    fault: Option<Fault>,
    /// The most files that the watch reports.
    most: Option<usize>,
}

struct Watch {
    events: mpsc::UnboundedSender<Result<HomeEvent, InsideError>>,
    /// The reader's state.
    known: BTreeMap<SessionPath, FileState>,
    file_max: u64,
}

/// The digest of contents.
pub(crate) fn digest(contents: &[u8]) -> Digest {
    Digest(Sha256::digest(contents).into())
}

fn state(file: &HomeFile) -> FileState {
    FileState {
        digest: digest(&file.contents),
        size: file.contents.len() as u64,
        executable: file.executable,
    }
}

fn lost() -> InsideError {
    InsideError::Unreachable("the test breaks the connection".to_owned())
}

impl MemoryHome {
    /// Writes a file inside. False when a directory or a file is in the way.
    pub(crate) fn write(&self, path: &SessionPath, contents: &[u8]) -> bool {
        let mut state = self.0.lock();
        let free = state.in_the_way(path).is_none();
        if free {
            let file = HomeFile {
                contents: Bytes::copy_from_slice(contents),
                executable: false,
            };
            state.files.insert(path.clone(), file);
        }
        free
    }

    /// Removes a file or a directory inside.
    pub(crate) fn remove(&self, path: &SessionPath) {
        self.0.lock().files.retain(|at, _| !at.is_within(path));
    }

    /// Renames a file inside. False when it is missing, or something is in the way.
    pub(crate) fn rename(&self, from: &SessionPath, to: &SessionPath) -> bool {
        let mut state = self.0.lock();
        let Some(file) = state.files.remove(from) else {
            return false;
        };
        let free = state.in_the_way(to).is_none();
        let at = if free { to } else { from };
        state.files.insert(at.clone(), file);
        free
    }

    /// All files.
    pub(crate) fn files(&self) -> BTreeMap<SessionPath, Bytes> {
        let state = self.0.lock();
        let files = state.files.iter();
        files
            .map(|(path, file)| (path.clone(), file.contents.clone()))
            .collect()
    }

    /// Lets the watch report changes.
    pub(crate) fn tell(&self) {
        self.0.lock().tell();
    }

    /// Breaks the connection of the watch.
    pub(crate) fn break_watch(&self) {
        if let Some(watch) = self.0.lock().watch.take() {
            let _ = watch.events.send(Err(lost()));
        }
    }

    /// Lets the watch end while there are more files than this.
    pub(crate) fn watch_at_most(&self, files: usize) {
        self.0.lock().most = Some(files);
    }

    /// Lets the next call fail.
    pub(crate) fn fail_next(&self, fault: Fault) {
        self.0.lock().fault = Some(fault);
    }
}

impl State {
    /// The reason why a path cannot be a file.
    fn in_the_way(&self, path: &SessionPath) -> Option<String> {
        let above = path
            .parents()
            .find(|parent| self.files.contains_key(parent));
        let below = self.files.keys().any(|at| at != path && at.is_within(path));
        match above {
            Some(above) => Some(format!("{above} is a file")),
            None => below.then(|| format!("{path} is a directory")),
        }
    }

    fn tell(&mut self) {
        if self.most.is_some_and(|most| self.files.len() > most) {
            if let Some(watch) = self.watch.take() {
                let message = "too many files could return".to_owned();
                let _ = watch.events.send(Err(InsideError::TooMuch(message)));
            }
            return;
        }
        let Some(watch) = &mut self.watch else {
            return;
        };
        let mut rules = Ignoring::default();
        for (path, file) in &self.files {
            if path.name() == gitignore::NAME {
                let directory = path.parents().next().map(String::from).unwrap_or_default();
                let _ = rules.set(&directory, Some(&file.contents));
            }
        }
        let returns = |path: &SessionPath, file: &HomeFile| {
            returning::may_return(path, file.contents.len() as u64, watch.file_max)
                && returning::returns(path, &file.contents)
                && !rules.ignores(path)
        };
        let paths: BTreeSet<_> = self
            .files
            .keys()
            .chain(watch.known.keys())
            .cloned()
            .collect();
        for path in paths {
            let event = match self.files.get(&path) {
                Some(file) if returns(&path, file) => {
                    let state = state(file);
                    if watch.known.insert(path.clone(), state) == Some(state) {
                        continue;
                    }
                    HomeEvent::Present { path, state }
                }
                there => {
                    if watch.known.remove(&path).is_none() {
                        continue;
                    }
                    match there {
                        Some(_) => HomeEvent::Withheld { path },
                        None => HomeEvent::Absent { path },
                    }
                }
            };
            let _ = watch.events.send(Ok(event));
        }
    }

    fn settle(&mut self) {
        self.tell();
        if let Some(watch) = &self.watch {
            let _ = watch.events.send(Ok(HomeEvent::Settled(self.flush)));
        }
    }

    /// Fails if the next call must fail before it does anything.
    fn begin(&mut self) -> Result<Option<Fault>, InsideError> {
        match self.fault.take() {
            Some(Fault::Before) => Err(lost()),
            fault => Ok(fault),
        }
    }

    fn apply(&mut self, change: &HomeChange) -> Applied {
        let there = self.files.get(&change.path).map(state);
        let wanted = change.file.as_ref().map(state);
        let (old, new) = (
            there.map(|file| file.digest),
            wanted.map(|file| file.digest),
        );
        if old != new && old != change.expected {
            return Applied::Differs(there);
        }
        if let (Some(_), Some(message)) = (wanted, self.in_the_way(&change.path)) {
            return Applied::Failed(message);
        }
        match &change.file {
            Some(file) => drop(self.files.insert(change.path.clone(), file.clone())),
            None => drop(self.files.remove(&change.path)),
        }
        if let Some(watch) = &mut self.watch {
            match wanted {
                Some(state) => drop(watch.known.insert(change.path.clone(), state)),
                None => drop(watch.known.remove(&change.path)),
            }
        }
        Applied::Done
    }

    /// Begins to write a file, as the daemon does, and ends in the middle.
    fn interrupt(&mut self, change: &HomeChange, steps: usize) {
        let mut outcome = Self {
            files: self.files.clone(),
            ..Self::default()
        };
        let (Applied::Done, Some(file)) = (outcome.apply(change), &change.file) else {
            return;
        };
        let old = self.files.get(&change.path);
        let mut mixture = old.map(|old| old.contents.to_vec()).unwrap_or_default();
        let common = mixture.len().min(file.contents.len());
        let (begin, end) = file.contents.split_at(common);
        mixture.extend(end.iter().take(steps));
        for (place, byte) in begin
            .iter()
            .enumerate()
            .take(steps.saturating_sub(end.len()))
        {
            mixture[place] = *byte;
        }
        let mixed = HomeFile {
            contents: mixture.into(),
            executable: file.executable,
        };
        self.files.insert(change.path.clone(), mixed);
    }
}

impl HomeFiles for MemoryHome {
    fn watch(&self, file_max: u64) -> BoxFuture<'_, Result<HomeEvents, InsideError>> {
        Box::pin(async move {
            let mut state = self.0.lock();
            if state.begin()?.is_some() {
                return Err(lost());
            }
            let (events, told) = mpsc::unbounded_channel();
            let watch = Watch {
                events,
                known: BTreeMap::new(),
                file_max,
            };
            state.flush = 0;
            if let Some(former) = state.watch.replace(watch) {
                let replaced = InsideError::Refused("another watch has begun".to_owned());
                let _ = former.events.send(Err(replaced));
            }
            state.settle();
            let told = stream::unfold(told, async |mut told| {
                let event = told.recv().await?;
                Some((event, told))
            });
            Ok(told.boxed())
        })
    }

    fn apply(&self, changes: Vec<HomeChange>) -> BoxFuture<'_, Result<Vec<Applied>, InsideError>> {
        Box::pin(async move {
            let mut state = self.0.lock();
            let fault = state.begin()?;
            let mut outcomes = Vec::new();
            for (number, change) in changes.iter().enumerate() {
                match fault {
                    Some(Fault::After(made)) if made == number => return Err(lost()),
                    Some(Fault::Within(made, steps)) if made == number => {
                        state.interrupt(change, steps);
                        return Err(lost());
                    }
                    _ => outcomes.push(state.apply(change)),
                }
            }
            fault.map_or(Ok(outcomes), |_| Err(lost()))
        })
    }

    fn look(&self, paths: Vec<SessionPath>) -> BoxFuture<'_, Result<Vec<Found>, InsideError>> {
        Box::pin(async move {
            let mut home = self.0.lock();
            if home.begin()?.is_some() {
                return Err(lost());
            }
            let found = paths.iter().map(|path| match home.files.get(path) {
                Some(file) => Found::File(state(file)),
                None if home.files.keys().any(|at| at.is_within(path)) => {
                    Found::Other(format!("{path} is a directory"))
                }
                None => Found::Nothing,
            });
            Ok(found.collect())
        })
    }

    fn read(&self, path: SessionPath) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        Box::pin(async move {
            let mut state = self.0.lock();
            if state.begin()?.is_some() {
                return Err(lost());
            }
            let file = state.files.get(&path);
            let contents = file.ok_or_else(|| InsideError::NotFound(path.to_string()))?;
            let contents = contents.contents.clone();
            Ok(FileContents {
                size: Some(contents.len() as u64),
                contents: stream::iter([Ok(contents)]).boxed(),
            })
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<u64, InsideError>> {
        Box::pin(async move {
            let mut state = self.0.lock();
            let fault = state.begin()?;
            if state.watch.is_none() {
                return Err(InsideError::Invalid("nothing watches".to_owned()));
            }
            state.flush += 1;
            state.settle();
            fault.map_or(Ok(state.flush), |_| Err(lost()))
        })
    }
}
