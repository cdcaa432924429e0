//! Conversion of a kernel's messages to JSON lines for the client.
//!
//! Values are copied from the message in their encoded form: a hundred megabytes of text cost one
//! scan and one copy. Messages are untrusted. An invalid message yields no line, and a line never
//! contains a line break.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Bytes by which a text may outgrow its message in any case, because there is no reservation for
/// more.
const SPARE: usize = 64 << 10;

/// MIME types with their own result field, and its name (spec).
const NAMES: [(&str, &str); 12] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("e2b/data", "data"),
    ("e2b/chart", "chart"),
];

/// Meaning of a message for the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Number of the execution.
    Count(u64),
    /// A line, including its newline.
    Line(Vec<u8>),
    /// An error line.
    Error(Vec<u8>),
    /// All output was sent.
    Idle,
}

#[derive(Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    execution_state: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Input {
    execution_count: u64,
}

#[derive(Deserialize)]
struct Stream<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    text: &'a RawValue,
}

#[derive(Deserialize)]
struct Bundle<'a> {
    #[serde(borrow)]
    data: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(borrow, default)]
    ename: Option<&'a RawValue>,
    #[serde(borrow, default)]
    evalue: Option<&'a RawValue>,
    #[serde(borrow, default)]
    traceback: Vec<&'a RawValue>,
}

/// Reply to an execution.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// Execution number.
    pub(super) count: Option<u64>,
    /// Error line, if it failed.
    pub(super) error: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct ReplyContent<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(default)]
    execution_count: Option<u64>,
}

/// Converts a broadcast message. `now` is the timestamp of printed text.
pub(super) fn read(kind: &str, content: &[u8], now: &str) -> Option<Output> {
    let content = text(content);
    match kind {
        "stream" => stream(&content, now),
        "display_data" => result(&content, false),
        "execute_result" => result(&content, true),
        "error" => failure(&content).map(Output::Error),
        "execute_input" => {
            let input: Input = serde_json::from_str(&content).ok()?;
            Some(Output::Count(input.execution_count))
        }
        "status" => {
            let status: Status<'_> = serde_json::from_str(&content).ok()?;
            (status.execution_state == "idle").then_some(Output::Idle)
        }
        _ => None,
    }
}

/// A message as text. Python copies invalid UTF-8 into its messages. Each invalid sequence becomes
/// U+FFFD (three bytes) as long as the text is not much longer than the message, and `?` after
/// that.
fn text(content: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(content) {
        return text.into();
    }
    let mut text = String::with_capacity(content.len());
    let mut spare = (content.len() / 2).max(SPARE);
    for chunk in content.utf8_chunks() {
        text.push_str(chunk.valid());
        if chunk.invalid().is_empty() {
            break;
        }
        // At most three bytes.
        let more = char::REPLACEMENT_CHARACTER.len_utf8() - chunk.invalid().len();
        if more <= spare {
            spare -= more;
            text.push(char::REPLACEMENT_CHARACTER);
        } else {
            text.push('?');
        }
    }
    text.into()
}

/// Converts the reply to an execution.
pub(super) fn reply(content: &[u8]) -> Reply {
    let content = text(content);
    let Ok(reply) = serde_json::from_str::<ReplyContent<'_>>(&content) else {
        return Reply::default();
    };
    let error = match &*reply.status {
        "ok" => None,
        "error" => failure(&content),
        _ => Some(error(
            "ExecutionAborted",
            "The kernel did not execute the code",
        )),
    };
    Reply {
        count: reply.execution_count,
        error,
    }
}

fn stream(content: &str, now: &str) -> Option<Output> {
    let stream: Stream<'_> = serde_json::from_str(content).ok()?;
    inner(stream.text)?;
    stream.line(stream.text.get(), now).map(Output::Line)
}

/// Splits printed text from its final newline. `None` if it has no newline or nothing else.
pub(super) fn end_apart(content: &[u8], now: &str) -> Option<[Vec<u8>; 2]> {
    let stream: Stream<'_> = serde_json::from_slice(content).ok()?;
    let text = inner(stream.text)?.strip_suffix("\\n")?;
    // After an odd number of backslashes the `n` is part of the text.
    let escapes = text.len() - text.trim_end_matches('\\').len();
    if text.is_empty() || !escapes.is_multiple_of(2) {
        return None;
    }
    let text = stream.line(&as_text(text), now)?;
    Some([text, stream.line("\"\\n\"", now)?])
}

impl Stream<'_> {
    fn line(&self, text: &str, now: &str) -> Option<Vec<u8>> {
        let kind = match &*self.name {
            "stdout" => "stdout",
            "stderr" => "stderr",
            _ => return None,
        };
        let mut line = Line::new(kind);
        line.raw("text", text);
        line.text("timestamp", now);
        Some(line.end())
    }
}

fn result(content: &str, main: bool) -> Option<Output> {
    let bundle: Bundle<'_> = serde_json::from_str(content).ok()?;
    let mut data = bundle.data;
    data.retain(|_, value| value.get() != "null");
    let mut line = Line::new("result");
    for (kind, name) in NAMES {
        let Some(value) = data.remove(kind) else {
            continue;
        };
        match inner(value) {
            Some(text) if name == "text" => line.raw(name, &as_text(unquoted(text))),
            _ => line.raw(name, value.get()),
        }
    }
    let mut extra = Line::default();
    for (kind, value) in &data {
        extra.raw(kind, value.get());
    }
    line.raw("extra", &extra.close());
    line.raw("is_main_result", if main { "true" } else { "false" });
    Some(Output::Line(line.end()))
}

fn failure(content: &str) -> Option<Vec<u8>> {
    let failure: Failure<'_> = serde_json::from_str(content).ok()?;
    let text = |value: Option<&RawValue>| match value.and_then(inner) {
        Some(text) => as_text(text),
        None => "\"\"".to_owned(),
    };
    let mut line = Line::new("error");
    line.raw("name", &text(failure.ename));
    line.raw("value", &text(failure.evalue));
    let traceback: String = failure.traceback.into_iter().filter_map(inner).collect();
    line.raw("traceback", &as_text(&traceback));
    Some(line.end())
}

/// A line with the execution number.
pub(super) fn count(count: u64) -> Vec<u8> {
    let mut line = Line::new("number_of_executions");
    line.raw("execution_count", &count.to_string());
    line.end()
}

/// An error line of the daemon.
pub(super) fn error(name: &str, value: &str) -> Vec<u8> {
    let mut line = Line::new("error");
    line.text("name", name);
    line.text("value", value);
    line.text("traceback", "");
    line.end()
}

/// The text of an error line.
pub(super) fn words(line: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Said {
        name: String,
        value: String,
    }
    match serde_json::from_slice(line) {
        Ok(Said { name, value }) if name.is_empty() => value,
        Ok(Said { name, value }) => format!("{name}: {value}"),
        Err(_) => "no reason given".to_owned(),
    }
}

/// A standard error line of the daemon.
pub(super) fn notice(text: &str, now: &str) -> Vec<u8> {
    let mut line = Line::new("stderr");
    line.text("text", &format!("{text}\n"));
    line.text("timestamp", now);
    line.end()
}

/// Keepalive line.
pub(super) const KEEPALIVE: &[u8] = b"{\"type\":\"keepalive\"}\n";

/// Final line.
pub(super) const END: &[u8] = b"{\"type\":\"end_of_execution\"}\n";

/// The encoded text between the quotes of a JSON string.
fn inner(value: &RawValue) -> Option<&str> {
    value.get().strip_prefix('"')?.strip_suffix('"')
}

/// Restores a JSON string from its encoded text.
fn as_text(inner: &str) -> String {
    format!("\"{inner}\"")
}

/// Removes a pair of quotes around a text (spec), which Python's `repr` adds. In JSON a double
/// quote has a backslash.
fn unquoted(text: &str) -> &str {
    for quote in ["'", "\\\""] {
        let inner = text.strip_prefix(quote);
        // The quote cannot be half of an escaped backslash, because it ends the text.
        if let Some(inner) = inner.and_then(|inner| inner.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

/// A line under construction.
#[derive(Default)]
struct Line(String);

impl Line {
    fn new(kind: &str) -> Self {
        let mut line = Self::default();
        line.text("type", kind);
        line
    }

    /// Adds an encoded JSON value.
    fn raw(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&quoted(name));
        self.0.push(':');
        if memchr::memchr2(b'\n', b'\r', value.as_bytes()).is_some() {
            // Only whitespace between values: in strings they are escaped.
            self.0.push_str(&value.replace(['\n', '\r'], " "));
        } else {
            self.0.push_str(value);
        }
    }

    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, &quoted(value));
    }

    fn close(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }

    fn end(self) -> Vec<u8> {
        let mut line = self.close().into_bytes();
        line.push(b'\n');
        line
    }
}

/// Encodes a JSON string.
fn quoted(text: &str) -> String {
    // Strings always serialise.
    serde_json::to_string(text).unwrap_or_default()
}

// Explicit path, because `fuzz/` includes this file.
#[cfg(test)]
#[path = "lines/tests.rs"]
mod tests;
