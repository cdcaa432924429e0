//! The daemon's log: one JSON object a line on standard output.
//!
//! The host may read slowly or stop reading, so writes never block. Lines that do not fit into the
//! pipe are dropped and counted; the count is logged once there is room (see [`sink`]).
//!
//! A line has `timestamp` (RFC 3339, milliseconds), `level`, `logger`, `message` and the fields of
//! the entry. No line is longer than [`MAX_LINE`].

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

pub(crate) mod lines;
pub(crate) mod rate;
mod sink;

use rate::Rate;
use sink::Sink;

/// Longest line in bytes, including its newline. Long enough for any event, short enough for a
/// reader's fixed buffer.
pub(crate) const MAX_LINE: usize = 16 << 10;

/// Longest text field in bytes. JSON escapes a byte to six at most, so two such fields fit into
/// [`MAX_LINE`]. Longer lines are truncated again below.
const MAX_TEXT: usize = 1 << 10;

/// Interval between log entries about refused requests.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

/// Longest path logged of a refused request, in bytes.
const REFUSED_PATH_MAX: usize = 200;

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Severity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// A failure that must not happen.
    Error,
    /// An anomaly.
    Warn,
    /// An event that operators want to know.
    Info,
    /// Any other event.
    Debug,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Unknown level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown log level '{0}' (expected error, warn, info or debug)")]
pub(crate) struct InvalidLevel(String);

impl FromStr for Level {
    type Err = InvalidLevel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Error, Self::Warn, Self::Info, Self::Debug]
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or_else(|| InvalidLevel(text.to_owned()))
    }
}

/// An entry under construction, written by [`send`](Entry::send).
pub(crate) struct Entry<'a> {
    log: &'a Log,
    fields: Option<Map<String, Value>>,
}

impl Entry<'_> {
    /// Adds a field. Long texts are truncated.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Some(fields) = &mut self.fields {
            let value = match value.into() {
                Value::String(text) if text.len() > MAX_TEXT => {
                    Value::String(cut(&text, MAX_TEXT).into_owned())
                }
                value => value,
            };
            fields.insert(name.to_owned(), value);
        }
        self
    }

    /// Adds the number of suppressed entries of this kind, if any.
    pub(crate) fn suppressed(self, count: u64) -> Self {
        if count == 0 {
            return self;
        }
        self.with("suppressed", count)
    }

    /// Adds a long text, which [`send`](Entry::send) truncates to fit the line.
    pub(crate) fn with_long(mut self, name: &str, text: &str) -> Self {
        if let Some(fields) = &mut self.fields {
            fields.insert(name.to_owned(), cut(text, MAX_LINE).into_owned().into());
        }
        self
    }

    /// Writes the entry, or drops it if the pipe is full.
    pub(crate) fn send(self) {
        if let Some(fields) = self.fields {
            self.log.sink.write(&render(fields));
        }
    }
}

/// The log. Clones share it.
#[derive(Clone)]
pub(crate) struct Log {
    sink: Arc<Sink>,
    level: Level,
    refusals: Arc<Mutex<Rate>>,
}

impl Log {
    /// A log on standard output, limited to `level` and above.
    pub(crate) fn to_stdout(level: Level) -> Self {
        Self::on(Sink::stdout(), level)
    }

    fn on(sink: Sink, level: Level) -> Self {
        let refusals = Rate::new(1, REFUSAL_INTERVAL, Instant::now());
        Self {
            sink: Arc::new(sink),
            level,
            refusals: Arc::new(Mutex::new(refusals)),
        }
    }

    /// A log that discards everything.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self::on(Sink::none(), Level::Error)
    }

    /// Starts an entry.
    pub(crate) fn entry(&self, level: Level, logger: &str, message: &str) -> Entry<'_> {
        let fields = (level <= self.level).then(|| {
            let mut fields = Map::new();
            fields.insert("timestamp".into(), now().into());
            fields.insert("level".into(), level.as_str().into());
            fields.insert("logger".into(), logger.into());
            fields.insert("message".into(), message.into());
            fields
        });
        Entry { log: self, fields }
    }

    /// Starts a warning.
    pub(crate) fn warn(&self, logger: &str, message: &str) -> Entry<'_> {
        self.entry(Level::Warn, logger, message)
    }

    /// Logs a rejected request. Unauthenticated callers control the rate of rejections, so all
    /// loggers share one entry a minute, which counts the suppressed ones.
    pub(crate) fn refused(&self, logger: &str, reason: &str, path: &str) {
        let Some(suppressed) = self.refusals.lock().allow(Instant::now()) else {
            return;
        };
        let entry = self.warn(logger, reason);
        let entry = entry.with("path", cut(path, REFUSED_PATH_MAX).into_owned());
        entry.suppressed(suppressed).send();
    }

    /// Starts an info entry.
    pub(crate) fn info(&self, logger: &str, message: &str) -> Entry<'_> {
        self.entry(Level::Info, logger, message)
    }

    /// Starts a debug entry.
    pub(crate) fn debug(&self, logger: &str, message: &str) -> Entry<'_> {
        self.entry(Level::Debug, logger, message)
    }

    /// Reports that the daemon listens. The host waits for this line, which has its own format.
    pub(crate) fn ready(&self, port: u16) {
        let mut fields = Map::new();
        fields.insert("event".into(), "ready".into());
        fields.insert("timestamp".into(), now().into());
        fields.insert("level".into(), Level::Info.as_str().into());
        fields.insert("logger".into(), "envd".into());
        fields.insert("message".into(), "listening".into());
        fields.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        fields.insert("port".into(), port.into());
        self.sink.write(&render(fields));
    }

    /// Flushes pending output whenever the pipe has room. Runs forever.
    pub(crate) async fn drain(&self) {
        self.sink.drain().await;
    }
}

fn now() -> String {
    // The format has no fallible component.
    OffsetDateTime::now_utc()
        .format(TIMESTAMP)
        .unwrap_or_default()
}

/// Serialises an entry to at most [`MAX_LINE`] bytes by truncating its longest text.
fn render(mut fields: Map<String, Value>) -> Vec<u8> {
    loop {
        // A map with string keys always serialises.
        let mut line = serde_json::to_vec(&fields).unwrap_or_default();
        if line.len() < MAX_LINE {
            line.push(b'\n');
            return line;
        }
        let longest = fields
            .values_mut()
            .filter_map(|value| match value {
                Value::String(text) => Some(text),
                _ => None,
            })
            .max_by_key(|text| text.len());
        match longest {
            Some(text) if !text.is_empty() => *text = cut(text, text.len() / 2).into_owned(),
            _ => return Vec::new(),
        }
    }
}

/// Truncates a text to `max` bytes at a character boundary.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(max);
    Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_one_json_object_with_the_usual_fields() {
        let log = Log::on(Sink::none(), Level::Info);
        let entry = log.info("process", "started").with("pid", 7);
        let line = render(entry.fields.unwrap());
        let value: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(value["level"], "info");
        assert_eq!(value["logger"], "process");
        assert_eq!(value["message"], "started");
        assert_eq!(value["pid"], 7);
        assert_eq!(value["timestamp"].as_str().unwrap().len(), 24);
    }

    #[test]
    fn entries_below_the_level_are_not_built() {
        assert!(Log::none().info("a", "b").with("c", 1).fields.is_none());
    }

    proptest! {
        #[test]
        fn no_line_is_longer_than_the_limit(text in "\\PC{0,20000}", quotes in 0usize..20000) {
            let log = Log::on(Sink::none(), Level::Debug);
            let entry = log
                .debug("x", "y")
                .with_long("text", &text)
                .with_long("quotes", &"\u{1}".repeat(quotes))
                .with("short", text.clone());
            let line = render(entry.fields.unwrap());
            prop_assert!(!line.is_empty() && line.len() <= MAX_LINE);
            prop_assert!(serde_json::from_slice::<Value>(&line).is_ok());
        }
    }
}
