use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use shoal_core::clock::Timestamp;

use super::*;
use crate::config::{AuditConfig, Sources};

fn open(data: &Path, settings: &[&str]) -> Audit {
    let data = format!("data={}", data.display());
    let settings: Vec<String> = std::iter::once(data.as_str())
        .chain(settings.iter().copied())
        .map(str::to_owned)
        .collect();
    let config = Config::read(&Sources::default().with_settings(&settings)).unwrap();
    Audit::open(&config).unwrap()
}

fn event(target: &str) -> AuditEvent {
    AuditEvent::new(Timestamp::default(), "sandbox.kill", AuditResult::Ok).on(target)
}

fn team(name: &str) -> AuditSource {
    AuditSource::Team(name.parse().unwrap())
}

/// The targets in a file, in their order.
fn targets(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["target"][0].as_str().unwrap().to_owned()
    });
    lines.collect()
}

#[test]
fn each_source_has_a_file_of_its_own_that_nobody_else_may_open() {
    let data = tempfile::tempdir().unwrap();
    for start in ["one", "two"] {
        let audit = open(data.path(), &[]);
        audit.log().record(team("alpha"), event(start));
        audit.log().record(team("beta"), event("other"));
        audit.log().record(AuditSource::Stranger, event("unknown"));
        audit.end();
    }
    let directory = data.path().join("audit");
    assert_eq!(targets(&directory.join("alpha.jsonl")), ["one", "two"]);
    assert_eq!(targets(&directory.join("beta.jsonl")), ["other", "other"]);
    assert_eq!(targets(&directory.join("_strangers.jsonl")).len(), 2);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("alpha.jsonl")), 0o600);
}

#[test]
fn full_files_are_put_aside_and_only_so_many_are_kept() {
    let data = tempfile::tempdir().unwrap();
    let settings = AuditConfig { bytes: 30, keep: 2 };
    let mut files = Files::open(data.path().to_owned(), settings).unwrap();
    for number in 0..9 {
        let line = format!("{{\"target\":[\"{number}\"]}}\n");
        files.append("alpha", line.as_bytes()).unwrap();
    }
    files.append("beta", b"{\"target\":[\"b\"]}\n").unwrap();
    let kept = ["alpha.2.jsonl", "alpha.1.jsonl", "alpha.jsonl"];
    let kept = kept.map(|name| targets(&data.path().join(name)).concat());
    assert_eq!(kept, ["6", "7", "8"]);
    assert!(!data.path().join("alpha.3.jsonl").exists());
    assert_eq!(targets(&data.path().join("beta.jsonl")), ["b"]);
}

#[test]
fn a_disk_that_fails_is_told_and_stops_nobody() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().join("audit");
    let audit = open(data.path(), &[]);
    // In the way of the file.
    fs::create_dir_all(directory.join("alpha.jsonl/x")).unwrap();
    audit.log().record(team("alpha"), event("lost"));
    audit.log().record(team("beta"), event("kept"));
    audit.end();
    assert_eq!(targets(&directory.join("beta.jsonl")), ["kept"]);

    let files = Files::open(
        directory.clone(),
        AuditConfig {
            bytes: 1 << 20,
            keep: 1,
        },
    )
    .unwrap();
    let (sender, jobs) = sync_channel(8);
    let lost = AtomicU64::new(3);
    sender
        .send(Job::Write(
            "beta".into(),
            b"{\"target\":[\"on\"]}\n".to_vec(),
        ))
        .unwrap();
    sender.send(Job::End).unwrap();
    write(&jobs, files, &lost);
    assert_eq!(targets(&directory.join("beta.jsonl")), ["kept", "on"]);
    // The first log may have noted its own loss before it ended.
    let noted = targets(&directory.join("_server.jsonl"));
    assert_eq!(noted.last().map(String::as_str), Some("3"), "{noted:?}");
    assert_eq!(lost.load(Ordering::Relaxed), 0);
}

#[test]
fn a_full_queue_loses_events_and_counts_them() {
    let (sender, _jobs) = sync_channel(2);
    let queue = Queue {
        sender,
        lost: Arc::default(),
        bounded: [Bound::default(), Bound::default()],
    };
    for _ in 0..5 {
        queue.record(team("alpha"), event("x"));
    }
    assert_eq!(queue.lost.load(Ordering::Relaxed), 3);
}

#[test]
fn a_flood_of_strangers_is_bounded_by_the_minute() {
    let (bound, now) = (Bound::default(), Instant::now());
    let admitted = (0..10_000).filter(|_| bound.admits(now)).count();
    assert_eq!(admitted, BOUNDED_PER_MINUTE as usize);
    assert!(bound.admits(now + MINUTE));
}

#[test]
fn it_can_be_switched_off() {
    let data = tempfile::tempdir().unwrap();
    let audit = open(data.path(), &["audit.enabled=false"]);
    audit.log().record(team("alpha"), event("x"));
    audit.end();
    assert!(!data.path().join("audit").exists());
}
