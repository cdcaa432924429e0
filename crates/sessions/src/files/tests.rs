//! The two sides of a session's files, with a home directory in memory.

mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::files::{FileError, OnlyIf, WriteFile};
use shoal_core::session::SessionId;
use shoal_core::session::files::SyncState;
use shoal_core::session::path::SessionPath;

use super::follow::Connection;
use super::sync::{Side, Sync, SyncError};
use super::*;
use crate::local::Manual;
use crate::memory_home::MemoryHome;
use crate::memory_store::MemoryFiles;

fn path(text: &str) -> SessionPath {
    text.parse().unwrap()
}

fn file(at: &str, contents: &str) -> WriteFile {
    WriteFile {
        path: path(at),
        contents: Bytes::copy_from_slice(contents.as_bytes()),
        executable: None,
        only_if: OnlyIf::Always,
    }
}

/// A session with a machine.
struct Pair {
    store: MemoryFiles,
    contents: Contents,
    files: Arc<Files>,
    home: MemoryHome,
    machine: u8,
}

impl Pair {
    fn new() -> Self {
        let store = MemoryFiles::default();
        let contents = Contents::new(Arc::new(store.clone()), Arc::new(store.clone()));
        Self {
            files: Self::files(&store, &contents),
            store,
            contents,
            home: MemoryHome::default(),
            machine: 1,
        }
    }

    fn files(store: &MemoryFiles, contents: &Contents) -> Arc<Files> {
        let clock = Arc::<Manual>::default();
        let parts = FileParts {
            rows: Arc::new(store.clone()),
            contents: contents.clone(),
            clock: clock.clone(),
        };
        let events = Events::new(clock);
        Arc::new(Files::new(SessionId::from_entropy([1; 16]), parts, events))
    }

    /// The server ends, and starts again.
    fn restart(&mut self) {
        self.files = Self::files(&self.store, &self.contents);
    }

    /// The machine ends, and another one takes its place.
    async fn replace_machine(&mut self) {
        self.files.no_machine().await;
        self.home = MemoryHome::default();
        self.machine += 1;
    }

    async fn sync(&self, fresh: bool) -> Result<Sync, SyncError> {
        let side = Side {
            files: self.files.clone(),
            sandbox: SandboxId::from_entropy([self.machine; 16]),
            home: Arc::new(self.home.clone()),
        };
        Sync::begin(side, fresh).await
    }

    async fn write(&self, at: &str, contents: &str) {
        self.files.write(file(at, contents)).await.unwrap();
    }

    /// The session's files.
    async fn session(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for listed in self.files.list(None).await.unwrap() {
            let (_, contents) = self.files.read(&listed.path).await.unwrap();
            let contents = String::from_utf8(contents.to_vec()).unwrap();
            all.insert(listed.path.to_string(), contents);
        }
        all
    }

    /// The machine's files.
    fn machine(&self) -> BTreeMap<String, String> {
        let files = self.home.files().into_iter();
        let text = |contents: Bytes| String::from_utf8_lossy(&contents).into_owned();
        files
            .map(|(path, contents)| (path.to_string(), text(contents)))
            .collect()
    }
}

fn all(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    files.iter().map(owned).collect()
}

#[tokio::test]
async fn r2_021_a_machine_has_the_files_before_anything_runs() {
    let pair = Pair::new();
    pair.write("example/test.txt", "here").await;
    let _sync = pair.sync(true).await.unwrap();
    assert_eq!(pair.machine(), all(&[("example/test.txt", "here")]));
}

#[tokio::test]
async fn r2_017_files_outlive_the_machine() {
    let mut pair = Pair::new();
    let mut sync = pair.sync(true).await.unwrap();
    pair.home.write(&path("made.py"), b"print()");
    sync.settle().await.unwrap();
    drop(sync);
    pair.replace_machine().await;
    pair.restart();
    let _sync = pair.sync(true).await.unwrap();
    assert_eq!(pair.machine(), all(&[("made.py", "print()")]));
}

#[tokio::test]
async fn what_the_machine_came_with_is_the_session_s_only_when_it_changes() {
    let mut pair = Pair::new();
    pair.home.write(&path(".bashrc"), b"template");
    pair.home.write(&path(".profile"), b"template");
    let mut sync = pair.sync(true).await.unwrap();
    assert_eq!(pair.session().await, all(&[]));
    pair.home.write(&path(".bashrc"), b"mine");
    sync.settle().await.unwrap();
    assert_eq!(pair.session().await, all(&[(".bashrc", "mine")]));
    pair.home.remove(&path(".profile"));
    sync.settle().await.unwrap();
    drop(sync);
    // A new machine comes with both again, and the session's own takes its place.
    pair.replace_machine().await;
    pair.home.write(&path(".bashrc"), b"template of today");
    pair.home.write(&path(".profile"), b"template");
    let _sync = pair.sync(true).await.unwrap();
    let expected = [(".bashrc", "mine"), (".profile", "template")];
    assert_eq!(pair.machine(), all(&expected));
    assert_eq!(pair.session().await, all(&expected[..1]));
}

#[tokio::test]
async fn r2_059_a_conflict_keeps_both_and_names_one() {
    let pair = Pair::new();
    pair.write("a.txt", "first").await;
    let mut sync = pair.sync(true).await.unwrap();
    pair.home.write(&path("a.txt"), b"inside");
    pair.write("a.txt", "outside").await;
    sync.settle().await.unwrap();
    let both = all(&[("a.txt", "outside"), ("a.sandbox-1.txt", "inside")]);
    assert_eq!(pair.session().await, both);
    assert_eq!(pair.machine(), both);
    let view = pair.files.sync_view().await.unwrap();
    assert_eq!(view.state, SyncState::Conflict);
    assert_eq!(view.conflicts, [path("a.sandbox-1.txt")]);
    pair.files.remove(&path("a.sandbox-1.txt")).await.unwrap();
    sync.settle().await.unwrap();
    let view = pair.files.sync_view().await.unwrap();
    assert_eq!((view.state, view.connected), (SyncState::Synced, true));
    assert_eq!(pair.machine(), all(&[("a.txt", "outside")]));
}

#[tokio::test]
async fn r2_060_an_ignored_file_is_not_pushed() {
    let pair = Pair::new();
    pair.write(".gitignore", "secret/\n").await;
    pair.write("secret/key.txt", "k").await;
    let sync = pair.sync(true).await.unwrap();
    assert_eq!(pair.machine(), all(&[(".gitignore", "secret/\n")]));
    // It goes when it is not ignored any more.
    pair.write(".gitignore", "other/\n").await;
    sync.side.push().await.unwrap();
    assert!(pair.machine().contains_key("secret/key.txt"));
}

#[tokio::test]
async fn r2_058_a_directory_moves_in_the_session() {
    let pair = Pair::new();
    for (at, contents) in [("a/1.txt", "1"), ("a/b/2.txt", "2"), ("a-b.txt", "3")] {
        pair.write(at, contents).await;
    }
    let sync = pair.sync(true).await.unwrap();
    assert_eq!(pair.files.rename(&path("a"), &path("c")).await.unwrap(), 2);
    sync.side.push().await.unwrap();
    let moved = all(&[("a-b.txt", "3"), ("c/1.txt", "1"), ("c/b/2.txt", "2")]);
    assert_eq!(pair.machine(), moved);
    assert_eq!(pair.session().await, moved);
}

#[tokio::test]
async fn a_file_that_is_not_what_was_expected_is_refused() {
    let pair = Pair::new();
    pair.write("a", "1").await;
    let refused = |written: Result<_, FileError>| written.map(drop).unwrap_err().to_string();
    let mut new = file("a", "2");
    new.only_if = OnlyIf::Absent;
    let error = refused(pair.files.write(new).await);
    assert_eq!(error, "a has changed: read it again");
    let error = refused(pair.files.write(file("a/b", "2")).await);
    assert_eq!(error, "a/b: a is in the way");
    assert!(pair.files.rename(&path("a"), &path("a/b")).await.is_err());
    assert!(pair.files.remove(&path("b")).await.is_err());
    assert_eq!(pair.session().await, all(&[("a", "1")]));
}

#[tokio::test]
async fn contents_that_no_session_names_are_deleted() {
    let pair = Pair::new();
    let sweeping = tokio::spawn(pair.contents.clone().sweep());
    pair.write("a", "1").await;
    pair.write("b", "1").await;
    pair.write("a", "2").await;
    pair.files.remove(&path("a")).await.unwrap();
    let swept = async {
        while pair.store.kept() > 1 {
            tokio::task::yield_now().await;
        }
    };
    let most = std::time::Duration::from_secs(20);
    tokio::time::timeout(most, swept).await.unwrap();
    assert_eq!(pair.session().await, all(&[("b", "1")]));
    sweeping.abort();
}

#[tokio::test]
async fn a_machine_with_too_many_files_is_behind_with_the_reason_until_some_are_gone() {
    let mut pair = Pair::new();
    pair.write("a", "1").await;
    drop(pair.sync(true).await.unwrap());
    // The server ends, and the machine fills its home.
    pair.restart();
    pair.home.watch_at_most(1);
    pair.home.write(&path("many"), b"2");
    let open = |fresh| {
        let home = Arc::new(pair.home.clone());
        let sandbox = SandboxId::from_entropy([pair.machine; 16]);
        Connection::open(pair.files.clone(), sandbox, home, fresh)
    };
    assert!(open(true).await.is_err(), "a new machine cannot be used");
    let connection = open(false).await.unwrap();
    assert!(connection.settler().settle().await.is_err());
    let reason = "too many files could return";
    let view = pair.files.sync_view().await.unwrap();
    assert_eq!(view.state, SyncState::Behind);
    assert!(view.notes[0].contains(reason), "{:?}", view.notes);
    // The table is read again, and the reason stays.
    pair.files.table().await.unwrap().set_stale(true);
    let view = pair.files.sync_view().await.unwrap();
    assert!(view.notes[0].contains(reason), "{:?}", view.notes);
    pair.home.remove(&path("many"));
    connection.settler().settle().await.unwrap();
    let view = pair.files.sync_view().await.unwrap();
    assert_eq!((view.state, view.notes), (SyncState::Synced, vec![]));
}
