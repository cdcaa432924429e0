//! The JSON that E2B's clients send and expect, checked against the generated messages.

use serde_json::{from_str, json, to_value};
use shoal_protocol::filesystem::{EntryInfo, FileType, WatchDirRequest};
use shoal_protocol::process::process_event::{DataEvent, EndEvent, Event, data_event};
use shoal_protocol::process::process_input::Input;
use shoal_protocol::process::{
    ProcessEvent, SendInputRequest, SendSignalRequest, Signal, StartRequest,
};

#[test]
fn a_start_of_the_python_sdk_is_read() {
    let text = r#"{"process":{"cmd":"/bin/bash","args":["-l","-c","echo hello"]},"stdin":false}"#;
    let start: StartRequest = from_str(text).unwrap();
    assert_eq!(start.process.args.len(), 3);
    assert_eq!(start.stdin, Some(false));
    assert!(start.pty.is_unset());
}

#[test]
fn unknown_fields_and_nulls_are_passed_over() {
    let text = r#"{"process":{"cmd":"x","cwd":null,"later":{"a":[1]}},"tag":null,"more":1}"#;
    let start: StartRequest = from_str(text).unwrap();
    assert_eq!(start.process.cmd, "x");
    assert_eq!((&start.tag, &start.process.cwd), (&None, &None));
}

#[test]
fn names_may_be_in_snake_case() {
    let watch: WatchDirRequest =
        from_str(r#"{"path":"/w","include_entry":true,"allowNetworkMounts":true}"#).unwrap();
    assert!(watch.include_entry && watch.allow_network_mounts);
}

#[test]
fn a_signal_may_come_by_name_or_number() {
    for text in [r#"{"signal":"SIGNAL_SIGKILL"}"#, r#"{"signal":9}"#] {
        let request: SendSignalRequest = from_str(text).unwrap();
        assert_eq!(request.signal.as_known(), Some(Signal::SIGNAL_SIGKILL));
    }
    let request: SendSignalRequest = from_str(r#"{"signal":19}"#).unwrap();
    assert_eq!(request.signal.as_known(), None);
}

#[test]
fn bytes_are_base64() {
    let request: SendInputRequest =
        from_str(r#"{"process":{"pid":42},"input":{"stdin":"eA=="}}"#).unwrap();
    assert_eq!(request.input.input, Some(Input::Stdin("x".into())));
    let event = ProcessEvent {
        event: Some(Event::from(DataEvent {
            output: Some(data_event::Output::Stdout("hello\n".into())),
        })),
    };
    assert_eq!(
        to_value(&event).unwrap(),
        json!({"data": {"stdout": "aGVsbG8K"}})
    );
}

#[test]
fn an_end_leaves_out_what_is_zero() {
    let event = ProcessEvent {
        event: Some(Event::from(EndEvent {
            exit_code: 0,
            exited: true,
            status: "exit status 0".into(),
            error: None,
        })),
    };
    assert_eq!(
        to_value(&event).unwrap(),
        json!({"end": {"exited": true, "status": "exit status 0"}})
    );
}

#[test]
fn sizes_are_text_and_times_are_rfc3339() {
    let entry = EntryInfo {
        name: "a".into(),
        r#type: FileType::FILE_TYPE_FILE.into(),
        size: 5_000_000_000,
        mode: 0o644,
        modified_time: Some(buffa_types::google::protobuf::Timestamp {
            seconds: 1_767_323_045,
            nanos: 678_000_000,
            ..Default::default()
        })
        .into(),
        ..EntryInfo::default()
    };
    assert_eq!(
        to_value(&entry).unwrap(),
        json!({
            "name": "a", "type": "FILE_TYPE_FILE", "size": "5000000000", "mode": 420,
            "modifiedTime": "2026-01-02T03:04:05.678Z",
        })
    );
    let read: EntryInfo = from_str(r#"{"size":7,"type":2}"#).unwrap();
    assert_eq!(read.size, 7);
    assert_eq!(read.r#type.as_known(), Some(FileType::FILE_TYPE_DIRECTORY));
}
