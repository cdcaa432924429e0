//! Changes from the session to its machine.

use std::collections::{BTreeMap, BTreeSet};

use shoal_core::ports::inside::home::{Applied, Digest, FileState, HomeChange, HomeFile};
use shoal_core::ports::sessions::files::{FILE_MAX, RETURN_MAX};
use shoal_core::session::files::MachineFile;
use shoal_core::session::path::SessionPath;
use shoal_core::session::{interrupted, returning};
use shoal_core::store::{RowChange, StoreError};

use super::known;
use super::sync::{Side, SyncError, Told};

/// How many files go in the first call. The machine waits while they are prepared.
const FIRST: usize = if cfg!(test) { 1 } else { 256 };

/// The most files of one call. The machine waits between calls. Few in unit tests, so that several calls follow each other
/// there.
const BATCH: usize = if cfg!(test) { 2 } else { 2048 };

/// The most bytes of one call, unless a single file has more.
const BATCH_BYTES: u64 = 16 << 20;

/// How often files that change all the time are tried before other things get their turn.
const ROUNDS: usize = 1_000;

/// A change that the machine needs.
struct Wanted {
    change: HomeChange,
    /// The file to write; none to remove it.
    state: Option<FileState>,
}

/// A file of the machine that is not the expected one.
type Differing = (SessionPath, FileState);

/// A batch, and the outcomes of its changes.
#[derive(Default)]
struct Answered {
    wanted: Vec<Wanted>,
    outcomes: Vec<Applied>,
}

impl Side {
    /// Brings everything that waits to the machine.
    pub(super) async fn push(&self) -> Result<(), SyncError> {
        let mut most = FIRST;
        let mut wanted = self.prepare(&BTreeSet::new(), most).await?;
        let mut answered = Answered::default();
        for _ in 0..ROUNDS {
            if wanted.is_empty() {
                let answered = std::mem::take(&mut answered);
                self.resolve(self.applied(&answered).await?).await?;
                // Files that were under way may wait again.
                most = FIRST;
                wanted = self.prepare(&BTreeSet::new(), most).await?;
            }
            if wanted.is_empty() {
                return Ok(self.files.tell_sync().await?);
            }
            let changes = wanted.iter().map(|wanted| wanted.change.clone());
            // While the machine writes these, the former outcomes are stored and the next files are read.
            let apply = self.home.apply(changes.collect());
            most = BATCH.min(2 * most);
            let meanwhile = self.meanwhile(&answered, &wanted, most);
            let (outcomes, next) = tokio::join!(apply, meanwhile);
            let (differing, next) = next?;
            self.resolve(differing).await?;
            answered = Answered {
                outcomes: outcomes?,
                wanted: std::mem::replace(&mut wanted, next),
            };
        }
        self.resolve(self.applied(&answered).await?).await?;
        // The machine's events come before the rest.
        self.files.waiting.notify_one();
        Ok(())
    }

    /// While a batch is under way: stores the outcomes of the batch before, and reads the next files. Returns the files that
    /// differ, and the next ones.
    async fn meanwhile(
        &self,
        answered: &Answered,
        under_way: &[Wanted],
        most: usize,
    ) -> Result<(Vec<Differing>, Vec<Wanted>), StoreError> {
        let differing = self.applied(answered).await?;
        let under_way = under_way.iter().map(|wanted| &wanted.change.path);
        let decided_later = differing.iter().map(|(path, _)| path);
        let excluded = under_way.chain(decided_later).collect();
        let next = self.prepare(&excluded, most).await?;
        Ok((differing, next))
    }

    /// Resolves files that differ.
    async fn resolve(&self, differing: Vec<Differing>) -> Result<(), SyncError> {
        for (path, found) in differing {
            self.differs(path, found).await?;
        }
        Ok(())
    }

    /// The next files with their contents, at most so many, but for those that are under way.
    async fn prepare(
        &self,
        under_way: &BTreeSet<&SessionPath>,
        most: usize,
    ) -> Result<Vec<Wanted>, StoreError> {
        let wanted = self.batch(under_way, most).await?;
        self.fill(wanted).await
    }

    /// Stores the outcomes of changes. Returns the files that differ.
    async fn applied(&self, answered: &Answered) -> Result<Vec<Differing>, StoreError> {
        if answered.wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut table = self.files.table().await?;
        let mut rows: Vec<RowChange> = Vec::new();
        let mut differing = Vec::new();
        for (wanted, outcome) in answered.wanted.iter().zip(&answered.outcomes) {
            let path = &wanted.change.path;
            let mut row = known(table.row(path), &self.sandbox);
            let Some(machine) = &mut row.machine else {
                continue;
            };
            match outcome {
                Applied::Done => machine.agreed = wanted.state,
                Applied::Differs(None) => machine.agreed = None,
                Applied::Differs(Some(found)) => {
                    differing.push((path.clone(), *found));
                    continue;
                }
                Applied::Failed(reason) => {
                    table.block(path.clone(), reason.clone());
                    continue;
                }
            }
            machine.writing = None;
            machine.template = None;
            rows.push((path.clone(), Some(row)));
        }
        self.files.commit(&mut table, rows).await?;
        Ok(differing)
    }

    /// The next files, after it is stored that they are being written.
    async fn batch(
        &self,
        under_way: &BTreeSet<&SessionPath>,
        most: usize,
    ) -> Result<Vec<Wanted>, StoreError> {
        let mut table = self.files.table().await?;
        let (mut wanted, mut rows) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        let mut paths = table.next_behind(most, under_way);
        // Directories get out of the way before files take their place.
        paths.sort_by_key(|path| table.file(path).is_some());
        for path in paths {
            let mut row = known(table.row(&path), &self.sandbox);
            let state = row.state();
            bytes += state.map_or(0, |state| state.size);
            if bytes > BATCH_BYTES && !wanted.is_empty() {
                break;
            }
            let Some(machine) = &mut row.machine else {
                continue;
            };
            let change = HomeChange {
                path: path.clone(),
                expected: machine.expected(),
                file: None,
            };
            wanted.push(Wanted { change, state });
            if let Some(state) = state {
                machine.writing = Some(state.digest);
                rows.push((path, Some(row)));
            }
        }
        self.files.commit(&mut table, rows).await?;
        Ok(wanted)
    }

    /// Reads the contents of the files to write. A file whose contents are lost stays as it is in the machine.
    async fn fill(&self, mut wanted: Vec<Wanted>) -> Result<Vec<Wanted>, StoreError> {
        let files = wanted.iter_mut().filter_map(|wanted| {
            let state = wanted.state?;
            Some((state, &mut wanted.change.file))
        });
        let (states, files): (Vec<_>, Vec<_>) = files.unzip();
        let digests = states.iter().map(|state| state.digest).collect();
        let contents = self.files.parts.contents.get_all(digests).await?;
        for ((state, file), contents) in states.iter().zip(files).zip(contents) {
            *file = contents.map(|contents| HomeFile {
                contents,
                executable: state.executable,
            });
        }
        let is_lost = |wanted: &mut Wanted| wanted.state.is_some() && wanted.change.file.is_none();
        let lost: Vec<_> = wanted.extract_if(.., is_lost).collect();
        if !lost.is_empty() {
            let session = &self.files.session;
            let mut table = self.files.table().await?;
            for Wanted { change, .. } in lost {
                tracing::error!(%session, path = %change.path, "the contents of a session's file are missing");
                table.block(
                    change.path,
                    "its contents are missing in the store".to_owned(),
                );
            }
        }
        Ok(wanted)
    }

    /// The machine has another file at the path than was expected.
    async fn differs(&self, path: SessionPath, found: FileState) -> Result<(), SyncError> {
        self.note_written(&path, found).await?;
        let row = {
            let table = self.files.table().await?;
            known(table.row(&path), &self.sandbox)
        };
        let Some(machine) = row.machine.clone() else {
            return Ok(());
        };
        if machine.agreed == Some(found) {
            return Ok(());
        }
        if row.file.is_none() {
            return Ok(self.let_be(path).await?);
        }
        let Some(contents) = self.read(&path, FILE_MAX).await? else {
            // It has changed again, or is too large for any comparison.
            self.files.table().await?.withhold(path);
            return Ok(());
        };
        if super::contents::digest(&contents) != found.digest {
            // The next attempt reports the state of the machine.
            return Ok(());
        }
        if self
            .is_own_work(machine.expected(), machine.writing, &contents)
            .await?
        {
            let agreed = |machine: &mut MachineFile| {
                machine.agreed = Some(found);
                machine.template = None;
            };
            return Ok(self.note(path, agreed).await?);
        }
        let is_ignored = self.files.table().await?.ignores(&path);
        let returns = !is_ignored
            && returning::may_return(&path, found.size, RETURN_MAX)
            && returning::returns(&path, &contents);
        if !returns {
            self.files.table().await?.withhold(path);
            return Ok(());
        }
        let told = [(path.clone(), Told::Present(found))];
        let read = BTreeMap::from([(path, contents)]);
        Ok(self.decide(&told, &read).await?)
    }

    /// The session has removed a file that the machine has changed: a change wins over a deletion. If the file returns, the
    /// watch reports it.
    async fn let_be(&self, path: SessionPath) -> Result<(), StoreError> {
        let forgotten = |machine: &mut MachineFile| {
            machine.agreed = None;
            machine.writing = None;
            machine.template = None;
        };
        self.note(path, forgotten).await
    }

    /// Notes something about the machine's side. The session's side may have changed since the caller has looked, and
    /// stays.
    async fn note(
        &self,
        path: SessionPath,
        change: impl FnOnce(&mut MachineFile),
    ) -> Result<(), StoreError> {
        let mut table = self.files.table().await?;
        let mut row = known(table.row(&path), &self.sandbox);
        if let Some(machine) = &mut row.machine {
            change(machine);
        }
        self.files.commit(&mut table, vec![(path, Some(row))]).await
    }

    /// Whether a file is the remainder of an interrupted change by the server.
    async fn is_own_work(
        &self,
        old: Option<Digest>,
        writing: Option<Digest>,
        found: &[u8],
    ) -> Result<bool, StoreError> {
        let contents = &self.files.parts.contents;
        let Some(writing) = writing else {
            return Ok(false);
        };
        let new = contents.get(writing).await?;
        let old = match old {
            Some(old) => match contents.get(old).await? {
                Some(old) => Some(old),
                None => return Ok(false),
            },
            None => None,
        };
        Ok(new.is_some_and(|new| interrupted::is_interrupted(old.as_deref(), &new, found)))
    }
}
