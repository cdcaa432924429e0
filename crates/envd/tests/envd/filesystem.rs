//! Listing, moving, removing and watching files.

use std::os::unix::fs::{MetadataExt, symlink};

use connectrpc::ErrorCode;
use serde_json::{Value, json};
use shoal_protocol::filesystem::{EventType, FileType};

use crate::daemon::{UID, USER, daemon};
use crate::wire::Item;

const FS: &str = "/filesystem.Filesystem/";

fn rpc(name: &str) -> String {
    format!("{FS}{name}")
}

#[tokio::test]
async fn an_entry_is_described_in_both_codecs() {
    let daemon = daemon!();
    let path = daemon.path("a.txt");
    std::fs::write(&path, "hello").unwrap();
    std::os::unix::fs::chown(&path, Some(UID), Some(4242)).unwrap();
    let entry = daemon.client().stat("a.txt").await.unwrap();
    assert_eq!(
        (entry.name.as_str(), entry.path.as_str()),
        ("a.txt", path.as_str())
    );
    assert_eq!(entry.r#type.as_known(), Some(FileType::FILE_TYPE_FILE));
    assert_eq!((entry.owner.as_str(), entry.group.as_str()), (USER, "4242"));
    assert_eq!((entry.mode, entry.size), (0o644, 5));

    let answer = daemon.call(&rpc("Stat"), json!({"path": path})).await;
    let entry = &answer.json()["entry"];
    assert_eq!(entry["type"], "FILE_TYPE_FILE");
    assert_eq!((&entry["size"], &entry["mode"]), (&json!("5"), &json!(420)));
    assert_eq!(entry["permissions"], "-rw-r--r--");
    assert!(entry["modifiedTime"].as_str().unwrap().ends_with('Z'));
    assert!(entry.get("symlinkTarget").is_none());
}

#[tokio::test]
async fn each_file_error_has_its_code() {
    let daemon = daemon!();
    std::fs::write(daemon.path("file"), "").unwrap();
    symlink("loop", daemon.path("loop")).unwrap();
    for (call, message, status, code) in [
        ("Stat", json!({"path": "none"}), 404, "not_found"),
        ("Stat", json!({"path": "~root/x"}), 400, "invalid_argument"),
        ("Stat", json!({"path": "a\u{0}b"}), 400, "invalid_argument"),
        ("ListDir", json!({"path": "none"}), 404, "not_found"),
        ("ListDir", json!({"path": "file"}), 400, "invalid_argument"),
        (
            "ListDir",
            json!({"path": "loop"}),
            400,
            "failed_precondition",
        ),
        ("MakeDir", json!({"path": "file"}), 400, "invalid_argument"),
        ("MakeDir", json!({"path": "~"}), 409, "already_exists"),
        (
            "Move",
            json!({"source": "none", "destination": "x"}),
            404,
            "not_found",
        ),
        ("Remove", json!({"path": "/"}), 400, "invalid_argument"),
        (
            "GetWatcherEvents",
            json!({"watcherId": "w1"}),
            404,
            "not_found",
        ),
        (
            "RemoveWatcher",
            json!({"watcherId": "w1"}),
            404,
            "not_found",
        ),
        ("CreateWatcher", json!({"path": "none"}), 404, "not_found"),
        (
            "CreateWatcher",
            json!({"path": "file"}),
            400,
            "invalid_argument",
        ),
    ] {
        let answer = daemon.call(&rpc(call), message.clone()).await;
        assert_eq!(answer.status, status, "{call} {message}");
        assert_eq!(answer.json()["code"], code, "{call} {message}");
    }
    let answer = daemon
        .call_as("stranger", &rpc("Stat"), json!({"path": "/"}))
        .await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.json()["message"], "invalid username: 'stranger'");
}

#[tokio::test]
async fn directories_are_created_for_their_user_and_removed_recursively() {
    let daemon = daemon!();
    let client = daemon.client();
    let entry = client.make_dir("a/b/c").await.unwrap();
    assert_eq!(entry.path, daemon.path("a/b/c"));
    assert_eq!((entry.owner.as_str(), entry.mode), (USER, 0o755));
    assert_eq!(std::fs::metadata(daemon.path("a")).unwrap().uid(), UID);
    let error = client.make_dir("a/b").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::AlreadyExists));

    let entry = client.rename("a/b", "x/y").await.unwrap();
    assert_eq!(entry.path, daemon.path("x/y"));
    assert!(client.stat("a/b").await.unwrap_err().is_not_found());

    client.remove("x").await.unwrap();
    client.remove("x").await.unwrap();
    assert!(!daemon.home().join("x").exists());
}

#[tokio::test]
async fn a_list_is_sorted_and_respects_its_depth() {
    let daemon = daemon!();
    for name in ["d/b/deep", "d/a"] {
        std::fs::create_dir_all(daemon.path(name)).unwrap();
    }
    std::fs::write(daemon.path("d/c"), "").unwrap();
    symlink("c", daemon.path("d/link")).unwrap();
    let client = daemon.client();
    let names = async |depth| -> Vec<String> {
        let entries = client.list_dir("d", depth).await.unwrap();
        let root = daemon.path("d/");
        entries
            .iter()
            .map(|entry| entry.path.strip_prefix(&root).unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(0).await, ["a", "b", "c", "link"]);
    assert_eq!(names(2).await, ["a", "b", "b/deep", "c", "link"]);
    let entries = client.list_dir("d", 1).await.unwrap();
    let target = daemon.home().join("d/c").canonicalize().unwrap();
    assert_eq!(entries[3].symlink_target.as_deref(), target.to_str());
}

#[tokio::test]
async fn a_watch_reports_changes_since_its_start() {
    let daemon = daemon!();
    let client = daemon.client();
    client.make_dir("w/sub").await.unwrap();
    let mut watch = client.watch_dir("w", true).await.unwrap();
    std::fs::write(daemon.path("w/sub/f"), "x").unwrap();
    std::fs::create_dir(daemon.path("w/new")).unwrap();
    let mut next = async || {
        let change = watch.next().await.unwrap().unwrap();
        (change.name, change.r#type.as_known().unwrap())
    };
    assert_eq!(next().await, ("sub/f".into(), EventType::EVENT_TYPE_CREATE));
    assert_eq!(next().await, ("sub/f".into(), EventType::EVENT_TYPE_WRITE));
    assert_eq!(next().await, ("new".into(), EventType::EVENT_TYPE_CREATE));
    std::fs::write(daemon.path("w/new/g"), "").unwrap();
    assert_eq!(next().await, ("new/g".into(), EventType::EVENT_TYPE_CREATE));
}

#[tokio::test]
async fn a_watch_in_json_begins_with_a_start_and_ends_at_its_deadline() {
    let daemon = daemon!();
    let message = json!({"path": "~/watched", "includeEntry": true});
    // Long enough for the event on a busy machine.
    let headers = [("connect-timeout-ms", "5000")];
    // A hard link appears with its contents; a written file is empty at first.
    let outside = daemon.path("outside");
    std::fs::create_dir(daemon.path("watched")).unwrap();
    std::fs::write(&outside, "xy").unwrap();
    let mut stream = daemon.stream(&rpc("WatchDir"), &headers, &message).await;
    assert_eq!(stream.next().await, Item::Message(json!({"start": {}})));
    std::fs::hard_link(&outside, daemon.path("watched/f")).unwrap();
    let Item::Message(event) = stream.next().await else {
        panic!("no event");
    };
    assert_eq!(event["filesystem"]["name"], "f");
    assert_eq!(event["filesystem"]["type"], "EVENT_TYPE_CREATE");
    assert_eq!(event["filesystem"]["entry"]["size"], "2");
    loop {
        match stream.next().await {
            Item::Message(_) => {}
            Item::End(end) => {
                assert_eq!(end["error"]["code"], "deadline_exceeded");
                return;
            }
            Item::Broken => panic!("broken"),
        }
    }
}

#[tokio::test]
async fn a_watcher_collects_until_it_is_polled_or_removed() {
    let daemon = daemon!();
    let answer = daemon
        .call(
            &rpc("CreateWatcher"),
            json!({"path": "~", "recursive": true}),
        )
        .await;
    let id = json!({"watcherId": answer.json()["watcherId"]});
    std::fs::write(daemon.path("f"), "x").unwrap();
    let mut names = Vec::new();
    while names.len() < 2 {
        let answer = daemon.call(&rpc("GetWatcherEvents"), id.clone()).await;
        let body = answer.json();
        let events = body["events"].as_array().cloned().unwrap_or_default();
        names.extend(events.iter().map(|event: &Value| {
            (
                event["name"].as_str().unwrap().to_owned(),
                event["type"].as_str().unwrap().to_owned(),
            )
        }));
    }
    assert_eq!(names[0], ("f".into(), "EVENT_TYPE_CREATE".into()));
    assert_eq!(names[1], ("f".into(), "EVENT_TYPE_WRITE".into()));
    let answer = daemon.call(&rpc("GetWatcherEvents"), id.clone()).await;
    assert_eq!(answer.text(), "{}");
    assert_eq!(
        daemon.call(&rpc("RemoveWatcher"), id.clone()).await.text(),
        "{}"
    );
    assert_eq!(daemon.call(&rpc("GetWatcherEvents"), id).await.status, 404);
}

#[tokio::test]
async fn the_number_of_watchers_is_bounded() {
    let daemon = daemon!();
    loop {
        let answer = daemon
            .call(&rpc("CreateWatcher"), json!({"path": "~"}))
            .await;
        if answer.status != 200 {
            // Limited by the daemon, or earlier by the kernel.
            let code = answer.json()["code"].as_str().unwrap().to_owned();
            assert!(
                ["resource_exhausted", "internal"].contains(&code.as_str()),
                "{code}"
            );
            return;
        }
    }
}
