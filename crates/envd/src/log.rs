//! What the daemon reports: one JSON object a line, on standard output.
//!
//! The host reads that pipe when it likes, and may stop; so writing never waits. What does not fit
//! is dropped, counted, and the count is reported when there is room again (see [`sink`]).
//!
//! A line has `timestamp` (RFC 3339, milliseconds), `level`, `logger`, `message`, and whatever
//! fields belong to the entry. None is longer than [`MAX_LINE`].

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

/// The longest line in bytes, its end included. Long enough for any one event, and short enough
/// that a reader may hold a line in a fixed buffer.
pub(crate) const MAX_LINE: usize = 16 << 10;

/// The longest text in a field, in bytes. JSON makes at most six bytes of one, so two such fields
/// fit into [`MAX_LINE`]; longer lines are cut again below.
const MAX_TEXT: usize = 1 << 10;

/// How often a refused request is reported.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

/// How much of the path of a refused request is reported, in bytes.
const REFUSED_PATH_MAX: usize = 200;

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// How much an entry matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Something failed that should not.
    Error,
    /// Something is not as it should be.
    Warn,
    /// Something happened that people want to know.
    Info,
    /// Something happened.
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

/// A word that is no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is none of error, warn, info, debug")]
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

/// One entry being put together. Nothing is written before [`send`](Entry::send).
pub(crate) struct Entry<'a> {
    log: &'a Log,
    fields: Option<Map<String, Value>>,
}

impl Entry<'_> {
    /// Adds a field. Long texts are cut.
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

    /// Adds how many entries like this one were left out before it, if any were.
    pub(crate) fn suppressed(self, count: u64) -> Self {
        if count == 0 {
            return self;
        }
        self.with("suppressed", count)
    }

    /// Adds a long text. [`send`](Entry::send) cuts it as far as the line needs it.
    pub(crate) fn with_long(mut self, name: &str, text: &str) -> Self {
        if let Some(fields) = &mut self.fields {
            fields.insert(name.to_owned(), cut(text, MAX_LINE).into_owned().into());
        }
        self
    }

    /// Writes the entry, or drops it when nobody reads.
    pub(crate) fn send(self) {
        if let Some(fields) = self.fields {
            self.log.sink.write(&render(fields));
        }
    }
}

/// Where entries go. Clones share it.
#[derive(Clone)]
pub(crate) struct Log {
    sink: Arc<Sink>,
    level: Level,
    refusals: Arc<Mutex<Rate>>,
}

impl Log {
    /// A log on standard output that leaves out what matters less than `level`.
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

    /// A log that goes nowhere.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self::on(Sink::none(), Level::Error)
    }

    /// Begins an entry.
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

    /// Begins an entry about something that is not as it should be.
    pub(crate) fn warn(&self, logger: &str, message: &str) -> Entry<'_> {
        self.entry(Level::Warn, logger, message)
    }

    /// Reports a request without the right to ask. Callers without a token choose how many there are,
    /// so all loggers share one entry a minute, which counts those that were left out before it.
    pub(crate) fn refused(&self, logger: &str, reason: &str, path: &str) {
        let Some(suppressed) = self.refusals.lock().allow(Instant::now()) else {
            return;
        };
        let entry = self.warn(logger, reason);
        let entry = entry.with("path", cut(path, REFUSED_PATH_MAX).into_owned());
        entry.suppressed(suppressed).send();
    }

    /// Begins an entry that people want to know.
    pub(crate) fn info(&self, logger: &str, message: &str) -> Entry<'_> {
        self.entry(Level::Info, logger, message)
    }

    /// Begins an entry about something that happened.
    pub(crate) fn debug(&self, logger: &str, message: &str) -> Entry<'_> {
        self.entry(Level::Debug, logger, message)
    }

    /// Tells the host that the daemon listens. It has a form of its own, as a program waits for it.
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

    /// Writes what was left over whenever there is room again. Runs for ever.
    pub(crate) async fn drain(&self) {
        self.sink.drain().await;
    }
}

fn now() -> String {
    // The format has no part that can fail.
    OffsetDateTime::now_utc()
        .format(TIMESTAMP)
        .unwrap_or_default()
}

/// Makes a line of an entry, no longer than [`MAX_LINE`]: the longest text gives way.
fn render(mut fields: Map<String, Value>) -> Vec<u8> {
    loop {
        // A map with text keys can always be written.
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

/// The beginning of a text, at most `max` bytes, whole characters.
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
    fn what_matters_less_than_the_level_is_not_made() {
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
