//! Decides which messages of a program in a sandbox reach the client that talks to it. The program is
//! not trusted: it may write anything, as fast as it can.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

/// The longest message of a program, in bytes: a result with large images has some.
pub(super) const MESSAGE_MAX: usize = 4 << 20;

/// A program's own requests are answered this often at most.
const REQUEST_EVERY: Duration = Duration::from_millis(100);

/// The notification of a program whose tools have changed.
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// The parts of a message that identify it.
#[derive(Deserialize)]
struct Head {
    id: Option<Value>,
    method: Option<String>,
}

/// A message of the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The client expects it.
    Expected,
    /// The tools of the program have changed.
    ToolsChanged,
    /// No call waits for it, or it is no message.
    Ignored,
}

/// The line of a program is longer than [`MESSAGE_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message of more than {} MiB", MESSAGE_MAX >> 20)
    }
}

/// The state of one connection.
#[derive(Default)]
pub(super) struct Filter {
    /// The client's requests without a response yet.
    waiting: HashSet<String>,
    answered: Option<Instant>,
}

impl Filter {
    /// Notes a message of the client.
    pub(super) fn sent(&mut self, line: &[u8]) {
        if let Ok(Head { id: Some(id), .. }) = serde_json::from_slice(line) {
            self.waiting.insert(id.to_string());
        }
    }

    /// Classifies a message of the program.
    pub(super) fn received(&mut self, line: &[u8], now: Instant) -> Message {
        let Ok(head) = serde_json::from_slice::<Head>(line) else {
            return Message::Ignored;
        };
        match (head.method, head.id) {
            (None, Some(id)) if self.waiting.remove(&id.to_string()) => Message::Expected,
            (Some(_), Some(_)) if self.may_answer(now) => Message::Expected,
            (Some(method), None) if method == TOOLS_CHANGED => Message::ToolsChanged,
            _ => Message::Ignored,
        }
    }

    fn may_answer(&mut self, now: Instant) -> bool {
        let early = self
            .answered
            .is_some_and(|last| now.saturating_duration_since(last) < REQUEST_EVERY);
        if !early {
            self.answered = Some(now);
        }
        !early
    }
}

/// Splits a stream into lines.
#[derive(Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Adds bytes and returns the lines that they complete, each with its end.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut lines = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            self.add(line)?;
            lines.push(std::mem::take(&mut self.0));
            bytes = rest;
        }
        self.add(bytes)?;
        Ok(lines)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.0.len() + bytes.len() > MESSAGE_MAX {
            return Err(TooLong);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_responses_to_requests_reach_the_client() {
        let mut filter = Filter::default();
        let now = Instant::now();
        filter.sent(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        filter.sent(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        for ignored in [
            &b"listening on stdio"[..],
            b"\n",
            b"[1]",
            br#"{"jsonrpc":"2.0","id":2,"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
            br#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
        ] {
            assert_eq!(filter.received(ignored, now), Message::Ignored);
        }
        let response = br#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#;
        assert_eq!(filter.received(response, now), Message::Expected);
        assert_eq!(filter.received(response, now), Message::Ignored);
        let changed = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(filter.received(changed, now), Message::ToolsChanged);
    }

    #[test]
    fn a_flood_of_requests_is_not_answered() {
        let mut filter = Filter::default();
        let now = Instant::now();
        let ping = br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        assert_eq!(filter.received(ping, now), Message::Expected);
        assert_eq!(filter.received(ping, now), Message::Ignored);
        assert_eq!(
            filter.received(ping, now + REQUEST_EVERY),
            Message::Expected
        );
    }

    #[test]
    fn lines_are_completed_and_bounded() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"a").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(lines.push(b"b\nc\nd").unwrap(), [&b"ab\n"[..], b"c\n"]);
        assert_eq!(lines.push(&vec![b'x'; MESSAGE_MAX]), Err(TooLong));
    }
}
