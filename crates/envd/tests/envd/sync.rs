//! The files of a session: events of a home directory, and changes from outside.

mod attacks;
mod random;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use sha2::{Digest as _, Sha256};
use shoal_core::ports::inside::home::{
    Applied, Digest, Found, HomeChange, HomeEvent, HomeEvents, HomeFile, HomeFiles,
};
use shoal_core::ports::inside::{InsideError, SandboxClient};
use shoal_core::session::path::SessionPath;
use shoal_core::session::returning::FILE_MAX;

use crate::daemon::{DEADLINE, Daemon, UID, daemon};
use crate::sandbox_client::{Only, client};

/// A watched home.
pub(super) struct Watched {
    pub(super) home: Arc<dyn HomeFiles>,
    events: HomeEvents,
    /// The reported files, with their contents' digests and whether they may be executed.
    pub(super) known: BTreeMap<String, (Digest, bool)>,
    directory: PathBuf,
}

pub(super) fn path(text: &str) -> SessionPath {
    text.parse().unwrap()
}

pub(super) fn digest(contents: impl AsRef<[u8]>) -> Digest {
    Digest(Sha256::digest(contents).into())
}

pub(super) fn home(daemon: &Daemon) -> Arc<dyn HomeFiles> {
    client(Only(daemon.address), None).home("")
}

pub(super) fn writing(at: &str, expected: Option<&str>, contents: &str) -> HomeChange {
    HomeChange {
        path: path(at),
        expected: expected.map(digest),
        file: Some(HomeFile {
            contents: Bytes::copy_from_slice(contents.as_bytes()),
            executable: false,
        }),
    }
}

pub(super) fn removing(at: &str, expected: &str) -> HomeChange {
    HomeChange {
        path: path(at),
        expected: Some(digest(expected)),
        file: None,
    }
}

impl Watched {
    /// Watches the home of the default user, and returns once all of it is reported.
    pub(super) async fn start(daemon: &Daemon) -> Self {
        Self::over(home(daemon), daemon.home()).await
    }

    async fn over(home: Arc<dyn HomeFiles>, directory: PathBuf) -> Self {
        let events = home.watch(FILE_MAX).await.unwrap();
        let mut watched = Self {
            home,
            events,
            known: BTreeMap::new(),
            directory,
        };
        watched.until(0).await;
        watched
    }

    /// The events of everything that has changed so far.
    pub(super) async fn settle(&mut self) -> Vec<HomeEvent> {
        let flush = self.home.flush().await.unwrap();
        self.until(flush).await
    }

    async fn until(&mut self, flush: u64) -> Vec<HomeEvent> {
        let mut seen = Vec::new();
        loop {
            let event = tokio::time::timeout(DEADLINE, self.events.next()).await;
            let event = event.unwrap().unwrap().unwrap();
            match &event {
                HomeEvent::Present { path, state } => {
                    let value = (state.digest, state.executable);
                    let old = self.known.insert(path.to_string(), value);
                    assert_ne!(old, Some(value), "{path} was told twice");
                }
                HomeEvent::Absent { path } | HomeEvent::Withheld { path } => {
                    let old = self.known.remove(path.as_str());
                    assert!(old.is_some(), "{path} was not there: {event:?}");
                }
                HomeEvent::Settled(number) if *number >= flush => return seen,
                HomeEvent::Settled(_) | HomeEvent::Limited { .. } => {}
            }
            seen.push(event);
        }
    }

    pub(super) async fn apply(&self, changes: Vec<HomeChange>) -> Vec<Applied> {
        self.home.apply(changes).await.unwrap()
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.known.keys().map(String::as_str).collect()
    }

    pub(super) fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let at = self.directory.join(name);
        make_parent(&at);
        fs::write(&at, contents).unwrap();
        chown(&at, Some(UID), Some(UID)).unwrap();
    }
}

fn make_parent(at: &std::path::Path) {
    let parent = at.parent().unwrap();
    if !parent.exists() {
        make_parent(parent);
        fs::create_dir(parent).unwrap();
        chown(parent, Some(UID), Some(UID)).unwrap();
    }
}

async fn contents(home: &Arc<dyn HomeFiles>, at: &str) -> Result<Vec<u8>, InsideError> {
    let file = home.read(path(at)).await?;
    let whole: Vec<Bytes> = file.contents.try_collect().await.unwrap();
    assert_eq!(
        file.size,
        Some(whole.iter().map(|piece| piece.len() as u64).sum())
    );
    Ok(whole.concat())
}

#[tokio::test]
async fn r2_037_r2_058_changes_inside_are_told_with_their_paths() {
    let daemon = daemon!();
    fs::create_dir(daemon.home().join("example")).unwrap();
    fs::write(daemon.home().join("example/test.txt"), "one").unwrap();
    let mut watched = Watched::start(&daemon).await;
    assert_eq!(watched.known["example/test.txt"], (digest("one"), false));
    assert_eq!(
        contents(&watched.home, "example/test.txt").await.unwrap(),
        b"one"
    );

    watched.write("example/test.txt", "two");
    watched.write("new/deep/down.py", "print()");
    watched.settle().await;
    assert_eq!(watched.known["example/test.txt"].0, digest("two"));
    assert_eq!(watched.known["new/deep/down.py"].0, digest("print()"));

    let at = |name: &str| daemon.home().join(name);
    fs::rename(at("new"), at("newer")).unwrap();
    fs::remove_file(at("example/test.txt")).unwrap();
    watched.settle().await;
    assert_eq!(watched.names(), ["newer/deep/down.py"]);
    // The directory is still watched, at its new place.
    watched.write("newer/deep/down.py", "print(1)");
    watched.write("newer/up.py", "");
    watched.settle().await;
    assert_eq!(watched.known["newer/deep/down.py"].0, digest("print(1)"));
    fs::set_permissions(at("newer/up.py"), PermissionsExt::from_mode(0o755)).unwrap();
    watched.settle().await;
    assert_eq!(watched.known["newer/up.py"], (digest(""), true));
    fs::remove_dir_all(at("newer")).unwrap();
    watched.settle().await;
    assert_eq!(watched.names(), [""; 0]);
}

#[tokio::test]
async fn changes_are_told_without_a_flush() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    for number in 0..20 {
        watched.write("a.txt", number.to_string());
        loop {
            let event = tokio::time::timeout(DEADLINE, watched.events.next()).await;
            let event = event.unwrap().unwrap().unwrap();
            let HomeEvent::Present { state, .. } = event else {
                panic!("{event:?}");
            };
            // A slow machine may look at it between its two steps.
            if state.size > 0 {
                assert_eq!(state.digest, digest(number.to_string()));
                break;
            }
        }
    }
}

#[tokio::test]
async fn r2_038_r2_057_a_change_from_outside_is_one_of_the_same_file() {
    let daemon = daemon!();
    fs::write(daemon.home().join("page.html"), "a longer beginning").unwrap();
    chown(daemon.home().join("page.html"), Some(UID), Some(UID)).unwrap();
    let mut watched = Watched::start(&daemon).await;
    let at = daemon.home().join("page.html");
    let before = fs::metadata(&at).unwrap().ino();
    let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&kernel, &at, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE).unwrap();

    let change = writing("page.html", Some("a longer beginning"), "short");
    assert_eq!(watched.apply(vec![change]).await, [Applied::Done]);
    assert_eq!(fs::read(&at).unwrap(), b"short");
    assert_eq!(fs::metadata(&at).unwrap().ino(), before);
    let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 1024];
    let mut reader = inotify::Reader::new(&kernel, &mut buffer);
    assert_eq!(reader.next().unwrap().events(), ReadFlags::MODIFY);
    assert_eq!(reader.next().unwrap().events(), ReadFlags::CLOSE_WRITE);
    assert!(reader.next().is_err());

    let longer = "longer ".repeat(100_000);
    let change = writing("page.html", Some("short"), &longer);
    assert_eq!(watched.apply(vec![change]).await, [Applied::Done]);
    assert_eq!(fs::read_to_string(&at).unwrap(), longer);
    let made = writing("new/dir/a.py", None, "x");
    assert_eq!(watched.apply(vec![made]).await, [Applied::Done]);
    for name in ["new", "new/dir", "new/dir/a.py"] {
        let meta = fs::metadata(daemon.home().join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (UID, UID), "{name}");
    }
    // Changes from outside are not reported.
    assert_eq!(watched.settle().await, []);
    watched.write("new/dir/a.py", "y");
    watched.settle().await;
    assert_eq!(watched.known["new/dir/a.py"].0, digest("y"));
}

#[tokio::test]
async fn r2_059_a_change_of_another_file_than_expected_is_not_made() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    watched.write("a", "inside");
    let outcomes = watched
        .apply(vec![
            writing("a", Some("old"), "outside"),
            writing("a", None, "outside"),
            removing("a", "old"),
            writing("missing", Some("old"), "outside"),
            writing("none/missing", Some("old"), "outside"),
            // As it is already, so that an answer that was lost can be asked for again.
            writing("a", Some("old"), "inside"),
            removing("gone", "old"),
        ])
        .await;
    let Applied::Differs(Some(state)) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(state.digest, digest("inside"));
    assert_eq!(outcomes[1], outcomes[0]);
    assert_eq!(outcomes[2], outcomes[0]);
    assert_eq!(
        outcomes[3..5],
        [Applied::Differs(None), Applied::Differs(None)]
    );
    assert_eq!(outcomes[5..], [Applied::Done, Applied::Done]);
    assert_eq!(fs::read(daemon.home().join("a")).unwrap(), b"inside");
    assert!(!daemon.home().join("none").exists());
    let mut runs = writing("a", Some("inside"), "inside");
    runs.file.as_mut().unwrap().executable = true;
    assert_eq!(watched.apply(vec![runs]).await, [Applied::Done]);
    let mode = fs::metadata(daemon.home().join("a")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o755);
    watched.settle().await;
}

#[tokio::test]
async fn r2_058_removals_take_only_directories_that_they_have_emptied() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    watched.write("a/b/one", "1");
    watched.write("a/b/two", "2");
    watched.write("kept/one", "1");
    watched.write("kept/two", "2");
    fs::create_dir(daemon.home().join("empty")).unwrap();
    watched.write("swap/under/file", "3");
    watched.settle().await;
    let outcomes = watched
        .apply(vec![
            removing("a/b/one", "1"),
            removing("a/b/two", "2"),
            removing("kept/one", "1"),
            // A file in the place of a directory, and the other way round.
            removing("swap/under/file", "3"),
            writing("swap", None, "4"),
            removing("kept/two", "2"),
            writing("kept/two/three", None, "5"),
        ])
        .await;
    assert_eq!(outcomes, vec![Applied::Done; 7]);
    assert!(!daemon.home().join("a").exists());
    assert!(daemon.home().join("empty").is_dir());
    assert_eq!(fs::read(daemon.home().join("swap")).unwrap(), b"4");
    assert_eq!(
        fs::read(daemon.home().join("kept/two/three")).unwrap(),
        b"5"
    );
    assert_eq!(watched.settle().await, []);
}

#[tokio::test]
async fn r2_050_r2_055_a_changed_gitignore_is_obeyed_both_ways() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    watched.write("a.secret", "x");
    watched.write("deep/b.secret", "x");
    watched.write("deep/own/c.txt", "x");
    watched.write("deep/node_modules/m/index.js", "x");
    watched.settle().await;
    assert_eq!(
        watched.names(),
        ["a.secret", "deep/b.secret", "deep/own/c.txt"]
    );
    watched.write(".gitignore", "*.secret\n");
    watched.write("deep/.gitignore", "!b.secret\nown/\n");
    let events = watched.settle().await;
    let withheld = |at: &str| HomeEvent::Withheld { path: path(at) };
    assert!(events.contains(&withheld("a.secret")), "{events:?}");
    assert!(events.contains(&withheld("deep/own/c.txt")), "{events:?}");
    assert_eq!(
        watched.names(),
        [".gitignore", "deep/.gitignore", "deep/b.secret"]
    );
    // Changes of ignored files are not reported, and files that are not ignored any more are.
    watched.write("deep/own/c.txt", "y");
    watched.write("deep/own/d.txt", "y");
    assert_eq!(watched.settle().await, []);
    fs::remove_file(daemon.home().join("deep/.gitignore")).unwrap();
    watched.settle().await;
    assert_eq!(
        watched.names(),
        [".gitignore", "deep/own/c.txt", "deep/own/d.txt"]
    );
    watched.write("deep/own/d.txt", "z");
    watched.settle().await;
    assert_eq!(watched.known["deep/own/d.txt"].0, digest("z"));
}

#[tokio::test]
async fn r2_052_a_file_that_returns_no_more_is_not_gone() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    watched.write("a.txt", "text");
    watched.write("b.txt", "text");
    watched.settle().await;
    watched.write("a.txt", b"\0");
    watched.write("b.txt", vec![b'x'; usize::try_from(FILE_MAX).unwrap() + 1]);
    let events = watched.settle().await;
    // The files are reported in any order, and one that is still being written may return until it is too large.
    for at in ["a.txt", "b.txt"].map(path) {
        let of_file = |event: &&HomeEvent| match event {
            HomeEvent::Present { path, .. }
            | HomeEvent::Absent { path }
            | HomeEvent::Withheld { path } => *path == at,
            _ => false,
        };
        let told: Vec<_> = events.iter().filter(of_file).collect();
        let withheld = HomeEvent::Withheld { path: at.clone() };
        assert_eq!(told.last(), Some(&&withheld), "{events:?}");
        let gone = HomeEvent::Absent { path: at.clone() };
        assert!(!told.contains(&&gone), "{events:?}");
    }
    let asked = ["a.txt", "b.txt", "c.txt", "a.txt/x"].map(path).to_vec();
    let found = watched.home.look(asked).await.unwrap();
    assert!(matches!(&found[0], Found::File(state) if state.digest == digest(b"\0")));
    assert!(matches!(&found[1], Found::File(state) if state.size == FILE_MAX + 1));
    assert_eq!(found[2..], [Found::Nothing, Found::Nothing]);
    watched.write("a.txt", "text");
    watched.settle().await;
    assert_eq!(watched.names(), ["a.txt"]);
}

#[tokio::test]
async fn a_later_watch_ends_the_former() {
    let daemon = daemon!();
    let files = home(&daemon);
    assert!(matches!(files.flush().await, Err(InsideError::Invalid(_))));
    let mut first = Watched::start(&daemon).await;
    let second = Watched::start(&daemon).await;
    let ended = first.events.next().await.unwrap();
    assert!(matches!(ended, Err(InsideError::Refused(_))), "{ended:?}");
    assert!(first.events.next().await.is_none());
    second.home.flush().await.unwrap();
    drop(second);
    // The daemon sees it when it next writes, or reads the end of the connection.
    while files.flush().await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_end_of_the_home_ends_the_watch() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    fs::rename(daemon.home(), daemon.root.path().join("elsewhere")).unwrap();
    let ended = watched.events.next().await.unwrap();
    assert!(matches!(ended, Err(InsideError::NotFound(_))), "{ended:?}");
    let again = watched.home.watch(FILE_MAX).await;
    assert!(matches!(again.err(), Some(InsideError::NotFound(_))));
    symlink("/etc", daemon.home()).unwrap();
    let again = watched.home.watch(FILE_MAX).await;
    assert!(matches!(again.err(), Some(InsideError::Invalid(_))));
}
