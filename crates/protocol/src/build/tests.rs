use serde_json::json;

use super::*;

#[test]
fn what_the_sdk_sends_is_read() {
    let body = json!({
        "fromImage": "ubuntu:22.04",
        "force": false,
        "steps": [
            {"type": "COPY", "args": ["f.txt", "/tmp/f.txt", "", ""], "filesHash": "ab", "force": false},
            {"type": "RUN", "args": ["echo hi"], "force": true},
        ],
        "startCmd": "sleep 1",
        "fromImageRegistry": {"type": "registry", "username": "u", "password": "p"},
        "unheardOf": 1,
    });
    let start: BuildStart = serde_json::from_value(body).unwrap();
    assert_eq!(start.steps[0].files_hash.as_deref(), Some("ab"));
    assert!(start.steps[1].force && start.stages.is_empty());
    let aws =
        json!({"type": "aws", "awsAccessKeyId": "a", "awsSecretAccessKey": "s", "awsRegion": "r"});
    assert!(serde_json::from_value::<Registry>(aws).is_ok());
    let gcp = json!({"type": "gcp", "serviceAccountJson": "{}"});
    assert!(serde_json::from_value::<Registry>(gcp).is_ok());
}

#[test]
fn a_plain_build_is_sent_as_the_sdk_sends_it() {
    let start = BuildStart {
        from_image: Some("debian".into()),
        steps: vec![Step {
            kind: "RUN".into(),
            args: vec!["true".into()],
            ..Step::default()
        }],
        ..BuildStart::default()
    };
    assert_eq!(
        serde_json::to_value(start).unwrap(),
        json!({"fromImage": "debian", "force": false,
               "steps": [{"type": "RUN", "args": ["true"], "force": false}]})
    );
    let new = NewBuild {
        name: Some("x".into()),
        memory_mb: Some(512),
        cpu_count: Some(2),
        ..NewBuild::default()
    };
    assert_eq!(
        serde_json::to_value(new).unwrap(),
        json!({"name": "x", "memoryMB": 512, "cpuCount": 2})
    );
}

#[test]
fn passwords_are_not_printed() {
    let account = Registry::Registry {
        username: "u".into(),
        password: "hunter2".into(),
    };
    assert!(!format!("{account:?}").contains("hunter2"));
}
