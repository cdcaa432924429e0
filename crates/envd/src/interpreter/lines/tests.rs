use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T00:00:00.000000Z";

fn line(kind: &str, content: &Value) -> Value {
    match read(kind, content.to_string().as_bytes(), NOW) {
        Some(Output::Line(line) | Output::Error(line)) => parsed(&line),
        other => panic!("{other:?}"),
    }
}

fn parsed(line: &[u8]) -> Value {
    assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1));
    serde_json::from_slice(line).unwrap()
}

#[test]
fn printed_text_has_a_timestamp() {
    let said = line(
        "stream",
        &json!({"name": "stdout", "text": "a\n\"é😀\u{1}"}),
    );
    let wanted = json!({"type": "stdout", "text": "a\n\"é😀\u{1}", "timestamp": NOW});
    assert_eq!(said, wanted);
    let said = line("stream", &json!({"name": "stderr", "text": ""}));
    assert_eq!(said["type"], "stderr");
}

#[test]
fn known_types_are_result_fields_and_others_are_extra() {
    let said = line(
        "execute_result",
        &json!({"data": {
            "text/plain": "1", "image/png": "iVBO", "application/json": {"a": [1, null]},
            "e2b/chart": {"type": "line"}, "text/html": null, "application/x-own": "x",
        }, "metadata": {}, "execution_count": 1}),
    );
    let wanted = json!({
        "type": "result", "text": "1", "png": "iVBO", "json": {"a": [1, null]},
        "chart": {"type": "line"}, "extra": {"application/x-own": "x"}, "is_main_result": true,
    });
    assert_eq!(said, wanted);
    let said = line("display_data", &json!({"data": {}}));
    let wanted = json!({"type": "result", "extra": {}, "is_main_result": false});
    assert_eq!(said, wanted);
}

#[test]
fn one_pair_of_quotes_is_taken_off_a_text() {
    for (text, wanted) in [
        ("'a'", "a"),
        ("\"it's\"", "it's"),
        ("''a''", "'a'"),
        ("'a\"", "'a\""),
        ("'", "'"),
        ("\"", "\""),
        ("''", ""),
        ("\"\\\\\"", "\\\\"),
        ("'\\", "'\\"),
        ("x", "x"),
        ("", ""),
    ] {
        let said = line("execute_result", &json!({"data": {"text/plain": text}}));
        assert_eq!(said["text"], wanted, "{text}");
    }
}

#[test]
fn an_error_joins_its_traceback() {
    let content = json!({"ename": "E", "evalue": "v", "traceback": ["a\n", "b"]});
    let said = line("error", &content);
    let wanted = json!({"type": "error", "name": "E", "value": "v", "traceback": "a\nb"});
    assert_eq!(said, wanted);
    let said = line("error", &json!({"ename": "E", "evalue": null}));
    let wanted = json!({"type": "error", "name": "E", "value": "", "traceback": ""});
    assert_eq!(said, wanted);
}

#[test]
fn a_reply_yields_count_and_error() {
    let of = |content: Value| reply(content.to_string().as_bytes());
    let good = of(json!({"status": "ok", "execution_count": 3}));
    assert_eq!((good.count, good.error), (Some(3), None));
    let bad = of(json!({"status": "error", "ename": "E", "evalue": "v", "traceback": []}));
    assert_eq!(parsed(&bad.error.unwrap())["name"], "E");
    let aborted = of(json!({"status": "aborted"}));
    assert_eq!(parsed(&aborted.error.unwrap())["name"], "ExecutionAborted");
    assert_eq!(reply(b"nonsense"), Reply::default());
}

#[test]
fn invalid_utf8_and_lone_surrogates_pass() {
    let said = read("stream", b"{\"name\":\"stdout\",\"text\":\"a\xffb\"}", NOW);
    let Some(Output::Line(said)) = said else {
        panic!("{said:?}")
    };
    assert_eq!(parsed(&said)["text"], "a\u{fffd}b");
    let said = read("stream", br#"{"name":"stdout","text":"\ud83d"}"#, NOW);
    let Some(Output::Line(said)) = said else {
        panic!("{said:?}")
    };
    assert!(said.starts_with(br#"{"type":"stdout","text":"\ud83d""#));
}

#[test]
fn invalid_utf8_does_not_inflate_a_line() {
    let message = |count: usize, bytes: &[u8]| {
        let begin = &b"{\"name\":\"stdout\",\"text\":\""[..];
        [begin, &bytes.repeat(count), b"\"}"].concat()
    };
    let text = |content: &[u8]| {
        let Some(Output::Line(line)) = read("stream", content, NOW) else {
            panic!("no line");
        };
        assert!(line.len() <= content.len() + (content.len() / 2).max(SPARE) + 100);
        parsed(&line)["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(text(&message(9999, b"\x80")), "\u{fffd}".repeat(9999));
    let many = text(&message(1 << 20, b"\x80"));
    assert!(many.starts_with('\u{fffd}') && many.ends_with('?'));
    assert_eq!(many.chars().count(), 1 << 20);
    // A truncated sequence counts once and needs no more space than it had.
    let many = text(&message(1 << 20, b"\xf0\x9f\x98"));
    assert_eq!(many, "\u{fffd}".repeat(1 << 20));
}

#[test]
fn no_value_breaks_a_line() {
    let content = b"{\"data\": {\"application/json\": {\n\"a\":\r\n1}}}";
    let Some(Output::Line(said)) = read("display_data", content, NOW) else {
        panic!("no line");
    };
    assert_eq!(parsed(&said)["json"], json!({"a": 1}));
}

#[test]
fn invalid_messages_yield_no_line() {
    for (kind, content) in [
        ("stream", "{}"),
        ("stream", r#"{"name":"stdout","text":1}"#),
        ("stream", r#"{"name":"other","text":"a"}"#),
        ("execute_result", r#"{"data":[]}"#),
        ("error", "null"),
        ("status", r#"{"execution_state":"busy"}"#),
        ("comm_open", "{}"),
        ("execute_input", r#"{"execution_count":-1}"#),
    ] {
        let said = read(kind, content.as_bytes(), NOW);
        assert_eq!(said, None, "{kind} {content}");
    }
    let idle = read("status", br#"{"execution_state":"idle"}"#, NOW);
    assert_eq!(idle, Some(Output::Idle));
    let count = read("execute_input", br#"{"execution_count":7,"code":""}"#, NOW);
    assert_eq!(count, Some(Output::Count(7)));
}

#[test]
fn lines_of_the_daemon_are_json() {
    assert_eq!(parsed(KEEPALIVE)["type"], "keepalive");
    assert_eq!(parsed(END)["type"], "end_of_execution");
    assert_eq!(parsed(&error("A", "\"\n"))["value"], "\"\n");
    assert_eq!(parsed(&notice("a", NOW))["text"], "a\n");
    let number = json!({"type": "number_of_executions", "execution_count": 2});
    assert_eq!(parsed(&count(2)), number);
}

proptest! {
    #[test]
    fn text_survives_a_round_trip(text in ".*", name in "(text/plain|x/.{0,9})") {
        let said = line("stream", &json!({"name": "stdout", "text": text}));
        prop_assert_eq!(&said["text"], &json!(text));
        let said = line("execute_result", &json!({"data": {&name: {"a": &text}}}));
        let value = if name == "text/plain" { &said["text"] } else { &said["extra"][&name] };
        prop_assert_eq!(value, &json!({"a": text}));
    }
}

#[test]
fn a_final_newline_is_split_off() {
    let apart = |text: &str| {
        let content = format!(r#"{{"name": "stdout", "text": "{text}"}}"#);
        let parts = end_apart(content.as_bytes(), "T")?;
        let text = |line: &Vec<u8>| {
            let line: Value = serde_json::from_slice(line).unwrap();
            assert_eq!(line["type"], "stdout");
            line["text"].as_str().unwrap().to_owned()
        };
        Some(parts.each_ref().map(text))
    };
    let two = |one: &str| Some([one.to_owned(), "\n".to_owned()]);
    assert_eq!(apart(r"a\nb\n"), two("a\nb"));
    assert_eq!(apart(r"a\\\n"), two("a\\"));
    for whole in [r"a", r"\n", "", r"a\\n"] {
        assert_eq!(apart(whole), None, "{whole}");
    }
}
