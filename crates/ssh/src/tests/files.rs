//! The home directory as a place of a session's files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use shoal_core::ports::inside::home::{
    Applied, Found, HomeChange, HomeEvent, HomeEvents, HomeFile, HomeFiles,
};
use shoal_core::ports::sessions::files::Digest;
use shoal_core::session::path::SessionPath;

use super::*;

fn path(text: &str) -> SessionPath {
    text.parse().unwrap()
}

fn digest(text: &str) -> Digest {
    use sha2::Digest as _;
    Digest(sha2::Sha256::digest(text).into())
}

fn write(at: &str, expected: Option<&str>, text: &str) -> HomeChange {
    HomeChange {
        path: path(at),
        expected: expected.map(digest),
        file: Some(HomeFile {
            contents: text.to_owned().into(),
            executable: false,
        }),
    }
}

fn remove(at: &str, expected: &str) -> HomeChange {
    HomeChange {
        path: path(at),
        expected: Some(digest(expected)),
        file: None,
    }
}

/// The events of a watch up to a number, as `+path`, `-path` and `?path`.
async fn told(events: &mut HomeEvents, until: u64) -> Vec<String> {
    let mut told = Vec::new();
    let read = async {
        loop {
            match events.next().await.unwrap().unwrap() {
                HomeEvent::Present { path, .. } => told.push(format!("+{path}")),
                HomeEvent::Absent { path } => told.push(format!("-{path}")),
                HomeEvent::Withheld { path } => told.push(format!("?{path}")),
                HomeEvent::Limited { path, reason } => told.push(format!("!{path:?} {reason}")),
                HomeEvent::Settled(number) if number >= until => return,
                HomeEvent::Settled(_) => {}
            }
        }
    };
    tokio::time::timeout(LONG, read).await.unwrap();
    told.sort();
    told
}

async fn flushed(home: &Arc<dyn HomeFiles>, events: &mut HomeEvents) -> Vec<String> {
    let number = home.flush().await.unwrap();
    told(events, number).await
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_039_to_r2_056_what_returns_is_told_and_nothing_else() {
    let server = Server::start();
    for (name, text) in [
        ("a.py", "1"),
        ("deep/er/b.txt", "2"),
        ("node_modules/x/c.js", "3"),
        (".ssh/id_ed25519", "private"),
        (".bash_history", "ls"),
        (".gitignore", "*.secret\nclosed/\n"),
        ("d.secret", "4"),
        ("closed/e.txt", "5"),
        ("binary.bin", "\0"),
        ("deep/.hidden", "6"),
    ] {
        server.write(name, text);
    }
    symlink("/etc/passwd", server.home("link.txt")).unwrap();
    symlink("/etc", server.home("linked")).unwrap();
    std::fs::write(server.home("").join(OsStr::from_bytes(b"\xff.txt")), "7").unwrap();
    let opened = server.open().await;
    let home = opened.client.home("");
    let mut events = home.watch(10 << 20).await.unwrap();
    assert_eq!(
        told(&mut events, 0).await,
        ["+.gitignore", "+a.py", "+deep/.hidden", "+deep/er/b.txt"]
    );
    assert_eq!(flushed(&home, &mut events).await, [""; 0]);
    // The same size within the same second.
    server.write("a.py", "8");
    server.write("new.md", "9");
    std::fs::remove_file(server.home("deep/.hidden")).unwrap();
    server.write("deep/er/b.txt", "2\0");
    assert_eq!(
        flushed(&home, &mut events).await,
        ["+a.py", "+new.md", "-deep/.hidden", "?deep/er/b.txt"]
    );
    server.write(".gitignore", "*.py\n");
    assert_eq!(
        flushed(&home, &mut events).await,
        ["+.gitignore", "+closed/e.txt", "+d.secret", "?a.py"]
    );
    server.write("later.txt", "without a flush");
    let next = tokio::time::timeout(LONG, events.next()).await.unwrap();
    assert!(
        matches!(next, Some(Ok(HomeEvent::Present { path, .. })) if path.as_str() == "later.txt")
    );
    drop(events);
    until(async || home.flush().await.is_err()).await;
}

#[expect(clippy::too_many_lines, reason = "one scenario")]
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_made_in_place_and_are_not_told() {
    let server = Server::start();
    server.write("old.txt", "old text");
    let opened = server.open().await;
    let home = opened.client.home("");
    let mut events = home.watch(10 << 20).await.unwrap();
    assert_eq!(told(&mut events, 0).await, ["+old.txt"]);
    let inode = std::fs::metadata(server.home("old.txt")).unwrap().ino();
    let changes = vec![
        write("old.txt", Some("old text"), "new"),
        write("a/b/c.txt", None, "made"),
        write("logs/x.txt", None, "does not return"),
    ];
    assert_eq!(
        home.apply(changes).await.unwrap(),
        [Applied::Done, Applied::Done, Applied::Done]
    );
    let read = |name: &str| std::fs::read_to_string(server.home(name)).unwrap();
    assert_eq!(
        (read("old.txt").as_str(), read("a/b/c.txt").as_str()),
        ("new", "made")
    );
    assert_eq!(
        std::fs::metadata(server.home("old.txt")).unwrap().ino(),
        inode
    );
    assert_eq!(
        std::fs::metadata(server.home("a/b/c.txt")).unwrap().uid(),
        ACCOUNT
    );
    assert_eq!(flushed(&home, &mut events).await, ["?logs/x.txt"]);
    // Another file than was seen stays.
    server.write("old.txt", "theirs");
    let outcome = home
        .apply(vec![write("old.txt", Some("new"), "mine")])
        .await
        .unwrap();
    assert!(
        matches!(&outcome[..], [Applied::Differs(Some(state))] if state.digest == digest("theirs"))
    );
    let gone = home
        .apply(vec![write("none.txt", Some("x"), "y")])
        .await
        .unwrap();
    assert_eq!(gone, [Applied::Differs(None)]);
    assert_eq!(read("old.txt"), "theirs");
    let same = home
        .apply(vec![write("old.txt", None, "theirs")])
        .await
        .unwrap();
    assert_eq!(same, [Applied::Done]);
    // Longer, executable, and a file in the place of a directory that is empty now.
    let mut script = write("old.txt", Some("theirs"), "#!/bin/sh\nmore than before\n");
    script.file.as_mut().unwrap().executable = true;
    let changes = vec![
        remove("a/b/c.txt", "made"),
        script,
        write("a", None, "a file"),
    ];
    assert_eq!(
        home.apply(changes).await.unwrap(),
        [Applied::Done, Applied::Done, Applied::Done]
    );
    assert_eq!(read("old.txt"), "#!/bin/sh\nmore than before\n");
    assert_eq!(
        std::fs::metadata(server.home("old.txt"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
    assert_eq!(read("a"), "a file");
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_056_nothing_is_written_through_a_link_or_to_the_account_s_own_files() {
    let server = Server::start();
    let outside = server.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::chown(&outside, Some(ACCOUNT), Some(ACCOUNT)).unwrap();
    std::fs::write(outside.join("target.txt"), "whole").unwrap();
    std::os::unix::fs::chown(outside.join("target.txt"), Some(ACCOUNT), Some(ACCOUNT)).unwrap();
    symlink(&outside, server.home("dir")).unwrap();
    symlink(outside.join("target.txt"), server.home("file.txt")).unwrap();
    symlink(outside.join("new.txt"), server.home("dangling.txt")).unwrap();
    let opened = server.open().await;
    let home = opened.client.home("");
    for change in [
        write("dir/new.txt", None, "x"),
        write("dir/deeper/new.txt", None, "x"),
        write("dir/target.txt", Some("whole"), "x"),
        remove("dir/target.txt", "whole"),
        write("file.txt", Some("whole"), "x"),
        write("file.txt", None, "x"),
        write("dangling.txt", None, "x"),
        write(".ssh/authorized_keys", None, "x"),
        write(".bashrc", None, "x"),
    ] {
        let outcome = home.apply(vec![change.clone()]).await.unwrap();
        assert!(
            matches!(outcome[..], [Applied::Failed(_)]),
            "{change:?}: {outcome:?}"
        );
    }
    let left: Vec<_> = std::fs::read_dir(&outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["target.txt"]);
    assert_eq!(
        std::fs::read_to_string(outside.join("target.txt")).unwrap(),
        "whole"
    );
    assert!(!server.home(".ssh").exists() && !server.home(".bashrc").exists());
    let found = home.look(vec![
        path("dir/target.txt"),
        path("file.txt"),
        path("none"),
        path(".bashrc"),
    ]);
    let found = found.await.unwrap();
    assert!(
        matches!(
            found[..],
            [
                Found::Nothing,
                Found::Other(_),
                Found::Nothing,
                Found::Other(_)
            ]
        ),
        "{found:?}"
    );
    for name in ["dir/target.txt", "file.txt", ".ssh/id"] {
        assert!(home.read(path(name)).await.is_err(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_over_another_connection_and_ends_without_one() {
    let server = Server::start();
    server.write("a.txt", "1");
    let opened = server.open().await;
    let home = opened.client.home("");
    let mut events = home.watch(10 << 20).await.unwrap();
    assert_eq!(told(&mut events, 0).await, ["+a.txt"]);
    server.cut();
    until(async || !opened.client.is_open()).await;
    server.write("b.txt", "2");
    std::fs::remove_file(server.home("a.txt")).unwrap();
    assert_eq!(flushed(&home, &mut events).await, ["+b.txt", "-a.txt"]);
    server.refuse();
    server.cut();
    let ended = async {
        loop {
            match events.next().await {
                Some(Err(error)) => return error,
                Some(Ok(_)) => {}
                None => panic!("no error"),
            }
        }
    };
    let ended = tokio::time::timeout(LONG, ended).await.unwrap();
    assert!(matches!(ended, InsideError::External(_)), "{ended:?}");
}
