//! Scans of a home directory.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use russh_sftp::protocol::FileType;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::inside::home::{FileState, HomeEvent};
use shoal_core::session::path::SessionPath;
use shoal_core::session::returning;
use shoal_session_files::gitignore::{self, Ignoring};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::table::{Event, Known, is_settled};
use super::walk::{PathError, Walk, is_account_s, state_of};
use super::{Inner, PARALLEL};
use crate::link::Main;
use crate::sftp::{Entry, SftpError, Stamp};

/// The maximum number of synchronised files in a home.
const FILES_MAX: usize = 200_000;

/// The maximum number of entries in a scan.
const ENTRIES_MAX: usize = 1_000_000;

/// A scan.
pub(super) struct Scan<'a> {
    home: &'a Inner,
    main: &'a Main,
    walk: Walk<'a>,
    events: &'a mpsc::UnboundedSender<Event>,
    file_max: u64,
    /// When it started.
    begun: u64,
    ignoring: Ignoring,
    /// Files that are sent to the session.
    files: Vec<(SessionPath, Stamp)>,
    entries: usize,
    /// Directories that cannot be listed.
    hidden: Vec<SessionPath>,
}

/// A directory and its entries.
type Listed = (String, Result<Vec<(SessionPath, Entry)>, SftpError>);

impl<'a> Scan<'a> {
    /// Scans the home and reports changes.
    ///
    /// # Errors
    /// If the machine does not answer, or has too many files.
    pub(super) async fn run(
        home: &'a Inner,
        main: &'a Main,
        root: &'a str,
        file_max: u64,
        events: &'a mpsc::UnboundedSender<Event>,
    ) -> Result<(), InsideError> {
        let begun = home.table.lock().now();
        let mut scan = Self {
            home,
            main,
            walk: Walk::new(&main.sftp, root),
            events,
            file_max,
            begun,
            ignoring: Ignoring::default(),
            files: Vec::new(),
            entries: 0,
            hidden: Vec::new(),
        };
        let mut level = vec![String::new()];
        while !level.is_empty() {
            let listed = std::mem::take(&mut level).into_iter();
            let listed = listed.map(|directory| scan.list(directory));
            let listed: Vec<Listed> = stream::iter(listed).buffered(PARALLEL).collect().await;
            for (directory, entries) in listed {
                level.extend(scan.sort(&directory, entries).await?);
            }
        }
        scan.read_files().await?;
        scan.find_missing().await
    }

    /// The entries of a directory that may be of the session.
    async fn list(&self, directory: String) -> Listed {
        let mut found = Vec::new();
        let each = |name: String, entry: Entry| {
            // Names that are not UTF-8 arrive with replacement characters.
            if !name.contains(char::REPLACEMENT_CHARACTER)
                && let Ok(path) = SessionPath::join(&directory, &name)
                && !is_account_s(&path)
            {
                found.push((path, entry));
            }
            if found.len() > ENTRIES_MAX {
                return Err(SftpError::Refused("too many entries".to_owned()));
            }
            Ok(())
        };
        let at = self.walk.absolute(&directory);
        let listed = self.main.sftp.list(&at, each).await;
        (directory, listed.map(|()| found))
    }

    /// Sorts entries: files are looked at, and the directories that are listed next are returned.
    async fn sort(
        &mut self,
        directory: &str,
        entries: Result<Vec<(SessionPath, Entry)>, SftpError>,
    ) -> Result<Vec<String>, InsideError> {
        let own: Option<SessionPath> = directory.parse().ok();
        let entries = match (entries, own) {
            (Ok(entries), _) => entries,
            (Err(SftpError::Lost), _) => return Err(self.home.link.lost().into()),
            // It was removed during the scan.
            (Err(SftpError::Missing), Some(_)) => Vec::new(),
            (Err(error), Some(own)) => {
                self.limit(
                    Some(own.clone()),
                    &format!("it cannot be listed: {error:?}"),
                );
                self.hidden.push(own);
                Vec::new()
            }
            (Err(error), None) => {
                return Err(error.at("the home directory", || self.home.link.lost().into()));
            }
        };
        self.entries += entries.len();
        if self.entries > ENTRIES_MAX || self.files.len() > FILES_MAX {
            let text = format!(
                "the home directory has more than {FILES_MAX} files of the session: ignore some in a .gitignore"
            );
            return Err(InsideError::TooMuch(text));
        }
        self.read_rules(directory, &entries).await?;
        let mut directories = Vec::new();
        for (path, entry) in entries {
            match entry.kind {
                FileType::Dir => {
                    if returning::enters(path.name()) && !self.ignoring.ignores_entry(&path, true) {
                        directories.push(path.into());
                    }
                }
                FileType::File => {
                    if returning::may_return(&path, entry.stamp.size, self.file_max)
                        && !self.ignoring.ignores_entry(&path, false)
                    {
                        self.files.push((path, entry.stamp));
                    }
                }
                FileType::Symlink | FileType::Other => {}
            }
        }
        Ok(directories)
    }

    /// Reads the `.gitignore` of a directory.
    async fn read_rules(
        &mut self,
        directory: &str,
        entries: &[(SessionPath, Entry)],
    ) -> Result<(), InsideError> {
        let rules = entries
            .iter()
            .find(|(path, entry)| path.name() == gitignore::NAME && entry.kind == FileType::File);
        let Some((path, _)) = rules else {
            return Ok(());
        };
        let most = gitignore::FILE_MAX as u64;
        let set = match self.walk.contents(path, most).await {
            Ok(Some((text, _))) => self.ignoring.set(directory, Some(&text)),
            Ok(None) | Err(PathError::Missing(_)) => {
                // The next scan is soon.
                self.home.more.notify_one();
                return Ok(());
            }
            Err(PathError::Sftp(_, SftpError::Lost)) => return Err(self.home.link.lost().into()),
            // If it cannot be read or is too large, its directory is ignored.
            Err(_) => self
                .ignoring
                .set(directory, Some(&vec![b'#'; gitignore::FILE_MAX + 1])),
        };
        if let Err(error) = set {
            self.limit(Some(path.clone()), &error.to_string());
        }
        Ok(())
    }

    /// Reads the files that may have changed.
    async fn read_files(&mut self) -> Result<(), InsideError> {
        let files = std::mem::take(&mut self.files);
        let seen: BTreeSet<SessionPath> = files.iter().map(|(path, _)| path.clone()).collect();
        let changed = Mutex::new(Ok(()));
        {
            let this = &*self;
            stream::iter(files)
                .for_each_concurrent(PARALLEL, |(path, stamp)| {
                    let changed = &changed;
                    async move {
                        let failed = changed.lock().is_err();
                        if !failed && let Err(error) = this.look_at(path, stamp).await {
                            *changed.lock() = Err(error);
                        }
                    }
                })
                .await;
        }
        let mut table = self.home.table.lock();
        table.known.retain(|path, _| seen.contains(path));
        drop(table);
        changed.into_inner()
    }

    /// Compares a file that may have changed.
    async fn look_at(&self, path: SessionPath, listed: Stamp) -> Result<(), InsideError> {
        let known = self.home.table.lock().known.get(&path).copied();
        let known = known.filter(|known| known.stamp == listed);
        if let Some(known) = known.filter(|known| known.settled) {
            self.tell(path, known);
            return Ok(());
        }
        let since = known.map_or_else(Instant::now, |known| known.since);
        let settled = is_settled(&listed, since, self.main.ahead);
        let (contents, stamp) = match self.walk.contents(&path, self.file_max).await {
            Ok(Some(read)) => read,
            // It is changing, or gone: the next scan shows which.
            Ok(None) | Err(PathError::Missing(_) | PathError::InTheWay(_)) => return Ok(()),
            Err(PathError::Sftp(_, SftpError::Lost)) => return Err(self.home.link.lost().into()),
            Err(PathError::Sftp(_, error)) => {
                self.limit(Some(path), &format!("it cannot be read: {error:?}"));
                return Ok(());
            }
        };
        let known = Known {
            stamp,
            state: state_of(&contents, &stamp),
            returns: returning::returns(&path, &contents),
            since,
            settled: settled && stamp == listed,
        };
        self.tell(path, known);
        Ok(())
    }

    /// Reports an existing file.
    fn tell(&self, path: SessionPath, known: Known) {
        let mut table = self.home.table.lock();
        if table.has_changed_since(&path, self.begun) {
            return;
        }
        table.known.insert(path.clone(), known);
        let before: Option<FileState> = table.told.get(&path).copied();
        let event = if known.returns {
            if before == Some(known.state) {
                return;
            }
            table.told.insert(path.clone(), known.state);
            let state = known.state;
            HomeEvent::Present { path, state }
        } else {
            if table.told.remove(&path).is_none() {
                return;
            }
            HomeEvent::Withheld { path }
        };
        let now = table.now();
        let _ = self.events.send(Event(now, Ok(event)));
    }

    /// Reports files that were removed, or are ignored now.
    async fn find_missing(&self) -> Result<(), InsideError> {
        let missing: Vec<SessionPath> = {
            let table = self.home.table.lock();
            let told = table.told.keys().filter(|path| {
                let is_hidden = self.hidden.iter().any(|hidden| path.is_within(hidden));
                !table.known.contains_key(*path)
                    && !is_hidden
                    && !table.has_changed_since(path, self.begun)
            });
            told.cloned().collect()
        };
        for path in missing {
            let event = match self.walk.look(&path).await {
                Ok(entry) if entry.kind == FileType::File => {
                    HomeEvent::Withheld { path: path.clone() }
                }
                Err(PathError::Sftp(_, SftpError::Lost)) => {
                    return Err(self.home.link.lost().into());
                }
                Err(PathError::Sftp(..)) => continue,
                Ok(_) | Err(_) => HomeEvent::Absent { path: path.clone() },
            };
            let mut table = self.home.table.lock();
            if !table.has_changed_since(&path, self.begun) {
                table.told.remove(&path);
                let now = table.now();
                let _ = self.events.send(Event(now, Ok(event)));
            }
        }
        Ok(())
    }

    /// Reports an ignored entry once.
    fn limit(&self, path: Option<SessionPath>, reason: &str) {
        let key = path.as_ref().map(SessionPath::to_string);
        let mut table = self.home.table.lock();
        let before = table
            .limits
            .insert(key.unwrap_or_default(), reason.to_owned());
        if before.as_deref() != Some(reason) {
            let reason = reason.to_owned();
            let event = HomeEvent::Limited { path, reason };
            let _ = self.events.send(Event(u64::MAX, Ok(event)));
        }
    }
}
