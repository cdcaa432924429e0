//! Response stream of an execution.

use std::mem::take;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until};

use super::budget::Room;
use super::context::{Context, Slot};
use super::feed::{Feed, Left};
use super::lines::{self, Output};
use super::wire::Envelope;
use super::zmtp::MAX_MESSAGE;

/// Keepalive interval (spec). A failed keepalive also reveals a client that vanished silently.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);

/// Notice about possibly missing output.
const MISSING: &str = "Some output may be missing: the client read too slowly, and \
    the kernel of this language drops unread output";

/// Response stream of an execution.
pub(super) struct Telling {
    /// Output channel.
    pub(super) feed: Feed,
    /// Execution number, if the kernel reports none.
    pub(super) expected: u64,
    counted: bool,
    failed: bool,
    /// Notices sent after the first line: why state may be missing.
    pub(super) notices: Vec<String>,
    /// Whether final newlines are sent as separate lines.
    pub(super) ends_apart: bool,
    /// Time of the last line.
    pub(super) silence: Instant,
}

impl Telling {
    /// A stream without output yet.
    pub(super) fn new(feed: Feed) -> Self {
        Self {
            feed,
            expected: 1,
            counted: false,
            failed: false,
            notices: Vec::new(),
            ends_apart: false,
            silence: Instant::now(),
        }
    }

    /// Waits for the context, sending keepalives.
    pub(super) async fn turn(&mut self, context: &Context) -> Result<OwnedMutexGuard<Slot>, Left> {
        let turn = context.turn();
        tokio::pin!(turn);
        loop {
            tokio::select! {
                biased;
                // First: an execution whose client disconnected must not start.
                () = self.feed.closed() => return Err(Left),
                slot = &mut turn => return Ok(slot),
                () = sleep_until(self.silence + KEEPALIVE) => self.send(lines::KEEPALIVE).await?,
            }
        }
    }

    /// Handles a broadcast message. True if it was the last.
    pub(super) async fn hear(
        &mut self,
        envelope: Envelope,
        room: Room,
        count: &mut u64,
    ) -> Result<bool, Left> {
        if envelope.skipped > 0 {
            self.too_long(&envelope);
            return Ok(false);
        }
        let now = super::now();
        if self.ends_apart
            && envelope.kind == "stream"
            && let Some(parts) = lines::end_apart(&envelope.content, &now)
        {
            drop(envelope);
            self.begin();
            for (part, room) in parts.into_iter().zip([room, Room::default()]) {
                self.feed.send(part, room).await?;
                self.silence = Instant::now();
            }
            return Ok(false);
        }
        let said = lines::read(&envelope.kind, &envelope.content, &now);
        // Free the message while the line waits for budget.
        drop(envelope);
        match said {
            Some(Output::Count(number)) => {
                *count = number;
                self.expected = number;
                self.begin();
            }
            Some(Output::Line(line)) => {
                self.begin();
                self.feed.send(line, room).await?;
                self.silence = Instant::now();
            }
            Some(Output::Error(line)) => self.error(line, room).await?,
            Some(Output::Idle) => return Ok(true),
            None => {}
        }
        Ok(false)
    }

    fn too_long(&mut self, envelope: &Envelope) {
        let kind = envelope.kind.as_str();
        if !["stream", "display_data", "execute_result", "error"].contains(&kind) {
            return;
        }
        let text = format!(
            "Output omitted: larger than {} MiB. Write it to a file instead",
            MAX_MESSAGE >> 20
        );
        self.fail("OutputTooLarge", &text);
    }

    /// Sends the first line once.
    fn begin(&mut self) {
        if !self.counted {
            self.counted = true;
            self.feed.say_with_next(lines::count(self.expected));
            self.silence = Instant::now();
            for notice in take(&mut self.notices) {
                self.say(lines::notice(&notice, &super::now()));
            }
        }
    }

    /// Sends an error line, unless one was sent before. Uses the reservation of its source message.
    pub(super) async fn error(&mut self, line: Vec<u8>, room: Room) -> Result<(), Left> {
        self.begin();
        if !self.failed {
            self.feed.send(line, room).await?;
            self.silence = Instant::now();
            self.failed = true;
        }
        Ok(())
    }

    /// Sends an error of the daemon, without waiting.
    pub(super) fn fail(&mut self, name: &str, text: &str) {
        self.begin();
        if !std::mem::replace(&mut self.failed, true) {
            self.say(lines::error(name, text));
        }
    }

    /// Sends a notice if output may be missing because the client read slowly.
    pub(super) fn admit(&mut self) {
        if self.feed.has_held() {
            self.begin();
            self.say(lines::notice(MISSING, &super::now()));
        }
    }

    /// Sends the final line, without waiting.
    pub(super) fn end(&mut self) {
        self.begin();
        self.say(lines::END);
    }

    fn say(&mut self, line: impl Into<Bytes>) {
        self.feed.say(line);
        self.silence = Instant::now();
    }

    /// Sends a line.
    pub(super) async fn send(&mut self, line: impl Into<Bytes>) -> Result<(), Left> {
        self.feed.send(line, Room::default()).await?;
        self.silence = Instant::now();
        Ok(())
    }
}
