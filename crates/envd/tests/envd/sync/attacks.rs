//! Attacks from inside: links, pipes, bombs and races.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::Method;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::process::{Pid, Signal, kill_process};
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::inside::home::{Applied, Found, HomeEvent};
use shoal_protocol::sync::frame::{self, Head, Write};

use super::{Watched, contents, digest, home, path, removing, writing};
use crate::daemon::{UID, daemon};

#[tokio::test]
async fn r2_056_links_are_neither_told_nor_followed() {
    let daemon = daemon!();
    let outside = daemon.root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    chown(&outside, Some(UID), Some(UID)).unwrap();
    fs::write(outside.join("secret.txt"), "secret").unwrap();
    chown(outside.join("secret.txt"), Some(UID), Some(UID)).unwrap();
    let mut watched = Watched::start(&daemon).await;
    symlink(&outside, daemon.home().join("out")).unwrap();
    symlink(outside.join("secret.txt"), daemon.home().join("link.txt")).unwrap();
    symlink("nowhere", daemon.home().join("dangling")).unwrap();
    assert_eq!(watched.settle().await, []);
    for change in [
        writing("out/secret.txt", Some("secret"), "x"),
        writing("out/new.txt", None, "x"),
        removing("out/secret.txt", "secret"),
        writing("link.txt", Some("secret"), "x"),
        removing("link.txt", "secret"),
        writing("dangling", None, "x"),
    ] {
        let at = change.path.clone();
        let outcome = watched.apply(vec![change]).await.remove(0);
        let Applied::Failed(message) = outcome else {
            panic!("{at}: {outcome:?}");
        };
        assert!(message.ends_with("is a link"), "{message}");
    }
    for at in ["out/secret.txt", "link.txt"] {
        let error = contents(&watched.home, at).await.unwrap_err();
        assert!(matches!(error, InsideError::Invalid(_)), "{error}");
    }
    assert_eq!(fs::read(outside.join("secret.txt")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    // A file that becomes a link is gone.
    watched.write("a.txt", "x");
    watched.settle().await;
    fs::remove_file(daemon.home().join("a.txt")).unwrap();
    symlink(outside.join("secret.txt"), daemon.home().join("a.txt")).unwrap();
    let gone = HomeEvent::Absent {
        path: path("a.txt"),
    };
    assert_eq!(watched.settle().await, [gone]);
}

#[tokio::test]
async fn r2_056_a_directory_that_becomes_a_link_at_any_moment_leads_nowhere() {
    let daemon = daemon!();
    let outside = daemon.root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    chown(&outside, Some(UID), Some(UID)).unwrap();
    fs::write(outside.join("f0"), "outside").unwrap();
    chown(outside.join("f0"), Some(UID), Some(UID)).unwrap();
    let watched = Watched::start(&daemon).await;
    let (real, link) = (daemon.home().join("d"), daemon.home().join("link"));
    symlink(&outside, &link).unwrap();
    fs::create_dir(&real).unwrap();
    chown(&real, Some(UID), Some(UID)).unwrap();
    // So that removals do not take the directory, too.
    fs::write(real.join("kept"), "").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut swaps = 0;
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        })
    };
    let (mut done, mut refused) = (0, 0);
    for round in 0..400 {
        let at = format!("d/f{}", round % 3);
        let changes = vec![
            writing(&at, None, "from outside"),
            writing(&at, Some("outside"), "overwritten"),
            removing(&at, "outside"),
            removing(&at, "from outside"),
        ];
        for outcome in watched.apply(changes).await {
            match outcome {
                Applied::Done => done += 1,
                Applied::Differs(_) | Applied::Failed(_) => refused += 1,
            }
        }
        if let Ok(read) = contents(&watched.home, "d/f0").await {
            assert_ne!(read, b"outside");
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 0);
    assert!(done > 0 && refused > 0, "{done} and {refused}");
    assert_eq!(fs::read(outside.join("f0")).unwrap(), b"outside");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(
        !watched
            .known
            .values()
            .any(|(told, _)| *told == digest("outside"))
    );
}

#[tokio::test]
async fn what_is_no_file_is_left_alone_and_holds_nothing_up() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    let mode = Mode::from_raw_mode(0o666);
    let at = |name: &str| daemon.home().join(name);
    mknodat(CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    chown(at("directory"), Some(UID), Some(UID)).unwrap();
    let null = rustix::fs::makedev(1, 3);
    let device = mknodat(CWD, at("device"), FileType::CharacterDevice, mode, null);
    let mut names = vec!["pipe", "socket", "directory"];
    names.extend(device.is_ok().then_some("device"));
    assert_eq!(watched.settle().await, []);
    for name in names {
        let changes = vec![writing(name, None, "x"), removing(name, "x")];
        for outcome in watched.apply(changes).await {
            assert!(matches!(outcome, Applied::Failed(_)), "{name}: {outcome:?}");
        }
        let below = writing(&format!("{name}/below"), None, "x");
        let outcome = watched.apply(vec![below]).await.remove(0);
        assert_eq!(outcome == Applied::Done, name == "directory", "{outcome:?}");
        let found = watched.home.look(vec![path(name)]).await.unwrap();
        assert!(matches!(found[..], [Found::Other(_)]), "{name}: {found:?}");
        assert!(contents(&watched.home, name).await.is_err());
    }
}

#[tokio::test]
async fn names_that_are_no_paths_and_deep_trees_are_passed_over() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    for name in [b"\xff\xfe.txt".as_slice(), b"new\nline.txt", b"\x01"] {
        fs::write(daemon.home().join(OsStr::from_bytes(name)), "x").unwrap();
        fs::create_dir(
            daemon
                .home()
                .join(OsStr::from_bytes(&[name, b"d"].concat())),
        )
        .unwrap();
        let below = [name, b"d/below"].concat();
        fs::write(daemon.home().join(OsStr::from_bytes(&below)), "x").unwrap();
    }
    let mut deep = daemon.home();
    for level in 0..200 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
        if level == 62 || level == 63 {
            fs::write(deep.join("f"), "x").unwrap();
        }
    }
    watched.settle().await;
    assert_eq!(watched.names(), [format!("{}f", "d/".repeat(63))]);
    let again = Watched::start(&daemon).await;
    assert_eq!(again.names().len(), 1);
}

#[tokio::test]
async fn r2_050_many_files_are_told_and_dependencies_are_not_entered() {
    let daemon = daemon!();
    let fill = |directory: &str, count: usize| {
        let at = daemon.home().join(directory);
        fs::create_dir(&at).unwrap();
        for number in 0..count {
            fs::write(at.join(number.to_string()), "x").unwrap();
        }
    };
    fill("node_modules", 20_000);
    fill("src", 20_000);
    let mut watched = Watched::start(&daemon).await;
    assert_eq!(watched.known.len(), 20_000);
    fs::write(daemon.home().join("node_modules/new"), "x").unwrap();
    assert_eq!(watched.settle().await, []);
    fs::remove_dir_all(daemon.home().join("src")).unwrap();
    watched.settle().await;
    assert_eq!(watched.known.len(), 0);
}

#[tokio::test]
async fn events_that_the_kernel_drops_are_found_again() {
    let daemon = daemon!();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut watched = Watched::start(&daemon).await;
    watched.write("src/changed.py", "1");
    watched.write("src/removed.py", "1");
    watched.settle().await;
    let process = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    let (one, other) = (daemon.home().join("one.o"), daemon.home().join("other.o"));
    fs::write(&one, "").unwrap();
    for _ in 0..=limit / 2 {
        fs::rename(&one, &other).unwrap();
        fs::rename(&other, &one).unwrap();
    }
    watched.write("src/changed.py", "2");
    watched.write("deep/new.py", "3");
    fs::remove_file(daemon.home().join("src/removed.py")).unwrap();
    kill_process(process, Signal::CONT).unwrap();
    watched.settle().await;
    assert_eq!(watched.names(), ["deep/new.py", "src/changed.py"]);
    assert_eq!(watched.known["src/changed.py"].0, digest("2"));
    // The new directory is watched.
    watched.write("deep/new.py", "4");
    watched.settle().await;
    assert_eq!(watched.known["deep/new.py"].0, digest("4"));
}

#[tokio::test]
async fn r2_052_a_huge_file_costs_nothing() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    let huge = fs::File::create(daemon.home().join("huge.txt")).unwrap();
    huge.set_len(1 << 40).unwrap();
    assert_eq!(watched.settle().await, []);
    let outcome = watched.apply(vec![writing("huge.txt", None, "x")]).await;
    assert!(
        matches!(&outcome[..], [Applied::Failed(text)] if text.contains("bytes")),
        "{outcome:?}"
    );
    let found = watched.home.look(vec![path("huge.txt")]).await.unwrap();
    assert!(matches!(found[..], [Found::Other(_)]), "{found:?}");
}

#[tokio::test]
async fn r2_055_a_gitignore_bomb_hides_its_directory_alone() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    let mut complex = String::new();
    for number in 0..9_000 {
        writeln!(complex, "a*{number}*[b-y]?*z").unwrap();
    }
    watched.write("good/a.txt", "x");
    watched.write("large/.gitignore", vec![b'a'; 10 << 20]);
    watched.write("large/a.txt", "x");
    watched.write("complex/.gitignore", &complex);
    watched.write("complex/a17cc1z", "x");
    let mut nested = "nested".to_owned();
    for _ in 0..60 {
        watched.write(&format!("{nested}/.gitignore"), "**/x/**/y/**/z\n!**/x\n");
        nested.push_str("/x");
    }
    watched.write(&format!("{nested}/a.txt"), "x");
    let events = watched.settle().await;
    let told = |at: &str| {
        let limited = |event: &HomeEvent| matches!(event, HomeEvent::Limited { path: Some(told), .. } if told.as_str() == at);
        events.iter().any(limited)
    };
    assert!(told("large") && !told("good"), "{events:?}");
    let names = watched.names();
    assert!(names.contains(&"good/a.txt"));
    assert!(!names.iter().any(|name| name.starts_with("large/")));
    assert!(!names.contains(&"complex/a17cc1z"));
    assert!(names.iter().any(|name| name.starts_with(&nested)));
}

#[tokio::test]
async fn the_rights_are_the_user_s_own() {
    let daemon = daemon!();
    let mut watched = Watched::start(&daemon).await;
    let at = |name: &str| daemon.home().join(name);
    fs::write(at("root.txt"), "root's").unwrap();
    fs::set_permissions(at("root.txt"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::create_dir(at("closed")).unwrap();
    fs::set_permissions(at("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(at("closed/in.txt"), "root's").unwrap();
    let events = watched.settle().await;
    assert_eq!(watched.names(), [""; 0]);
    let limits = events
        .iter()
        .filter(|event| matches!(event, HomeEvent::Limited { .. }));
    assert_eq!(limits.count(), 2, "{events:?}");
    let changes = vec![
        writing("root.txt", Some("root's"), "x"),
        writing("closed/new.txt", None, "x"),
        removing("closed/in.txt", "root's"),
    ];
    for outcome in watched.apply(changes).await {
        assert!(matches!(outcome, Applied::Failed(_)), "{outcome:?}");
    }
    assert_eq!(fs::read(at("root.txt")).unwrap(), b"root's");
    // Another user's home is none.
    let root =
        crate::sandbox_client::client(crate::sandbox_client::Only(daemon.address), Some("root"));
    let files = shoal_core::ports::inside::SandboxClient::home(&root, &daemon.path(""));
    assert!(matches!(
        files.watch(1).await.err(),
        Some(InsideError::Invalid(_))
    ));
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing_of_its_last_file() {
    let daemon = daemon!();
    let head = |at: &str, size| {
        let head = Head {
            path: path(at),
            expected: None,
            write: Some(Write {
                size,
                executable: false,
            }),
        };
        frame::encode(&head).unwrap()
    };
    let body = [
        head("whole", 2),
        b"ab".to_vec(),
        head("half", 4),
        b"cd".to_vec(),
    ]
    .concat();
    let answer = daemon.ask(Method::POST, "/sync/apply").send(body).await;
    assert_eq!(answer.error().0, 400);
    assert_eq!(fs::read(daemon.home().join("whole")).unwrap(), b"ab");
    assert!(!daemon.home().join("half").exists());
    for (body, word) in [
        (Bytes::from_static(b"\xff\xff\xff\xff"), "head"),
        (Bytes::from_static(b"\0\0\0\x02{}"), "invalid head"),
    ] {
        let answer = daemon.ask(Method::POST, "/sync/apply").send(body).await;
        let (status, message) = answer.error();
        assert!(status == 400 && message.contains(word), "{message}");
    }
    for (method, route, status) in [
        (Method::GET, "/sync/apply", 405),
        (Method::GET, "/sync/else", 404),
        (Method::GET, "/sync/file?path=../x", 400),
        (Method::GET, "/sync/file?path=none", 404),
        (Method::GET, "/sync/watch?file_max=x", 400),
        (Method::GET, "/sync/watch?home=/none", 404),
        (Method::POST, "/sync/look", 400),
    ] {
        let answer = daemon.ask(method, route).send("").await;
        assert_eq!(answer.error().0, status, "{route}");
    }
    let files = home(&daemon);
    assert_eq!(contents(&files, "whole").await.unwrap(), b"ab");
}
