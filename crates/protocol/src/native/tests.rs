use super::*;

#[test]
fn an_envelope_has_its_three_fields_always_and_a_failure_is_told_twice() {
    let ok = serde_json::to_value(Envelope::ok(1)).unwrap();
    assert_eq!(
        ok,
        serde_json::json!({"code": "0", "message": "ok", "data": 1})
    );
    let failed = serde_json::to_value(Envelope::<()>::failed(404, "no")).unwrap();
    assert_eq!(
        failed,
        serde_json::json!({"code": "404", "message": "no", "error": "no", "data": null})
    );
}

#[test]
fn secrets_are_not_printed() {
    let pull = PullImage {
        name: "a".into(),
        username: Some("u".into()),
        password: Some("hunter2".into()),
    };
    assert!(!format!("{pull:?}").contains("hunter2"));
}

#[test]
fn an_event_says_what_it_is() {
    let event = ImageEvent::Progress {
        step: "s".into(),
        done: 1,
        total: None,
    };
    assert_eq!(
        serde_json::to_value(event).unwrap(),
        serde_json::json!({"type": "progress", "step": "s", "done": 1, "total": null})
    );
}
