//! What the client of an execution is told, and has been.

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

/// How often a client that hears nothing else gets a sign of life (spec): it is also how the end of
/// a client is noticed that did not say so.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);

/// What is said where output may be missing.
const MISSING: &str = "Some output may be missing: it was read more slowly than it was printed, and \
    the kernel of this language drops what nobody takes";

/// What the client has been told.
pub(super) struct Telling {
    /// Where it goes.
    pub(super) feed: Feed,
    /// What number the execution has if the kernel does not say.
    pub(super) expected: u64,
    counted: bool,
    failed: bool,
    /// What is said behind the first line: why what the code expects may be gone, or was not there.
    pub(super) notices: Vec<String>,
    /// Whether the ends of lines are told apart.
    pub(super) ends_apart: bool,
    /// Since when it has heard nothing.
    pub(super) silence: Instant,
}

impl Telling {
    /// Nothing yet.
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

    /// Waits for the context.
    pub(super) async fn turn(&mut self, context: &Context) -> Result<OwnedMutexGuard<Slot>, Left> {
        let turn = context.turn();
        tokio::pin!(turn);
        loop {
            tokio::select! {
                biased;
                // First: who has left is not executed, although it may be his turn.
                () = self.feed.closed() => return Err(Left),
                slot = &mut turn => return Ok(slot),
                () = sleep_until(self.silence + KEEPALIVE) => self.send(lines::KEEPALIVE).await?,
            }
        }
    }

    /// Tells of a message. True when it was the last one.
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
        // While the line waits, what it was made of is not there any more.
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
            "An output was left out: it has more than {} MiB. Write it to a file instead",
            MAX_MESSAGE >> 20
        );
        self.fail("OutputTooLarge", &text);
    }

    /// Sends the first line, if it has not been.
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

    /// Sends the first line that says why it failed, and no other. It has the room of what it was
    /// made of.
    pub(super) async fn error(&mut self, line: Vec<u8>, room: Room) -> Result<(), Left> {
        self.begin();
        if !self.failed {
            self.feed.send(line, room).await?;
            self.silence = Instant::now();
            self.failed = true;
        }
        Ok(())
    }

    /// Says in our words why it failed, to whoever is still there.
    pub(super) fn fail(&mut self, name: &str, text: &str) {
        self.begin();
        if !std::mem::replace(&mut self.failed, true) {
            self.say(lines::error(name, text));
        }
    }

    /// Says what a client may have missed that read more slowly than its kernel printed.
    pub(super) fn admit(&mut self) {
        if self.feed.has_held() {
            self.begin();
            self.say(lines::notice(MISSING, &super::now()));
        }
    }

    /// Says that it is over, to whoever is still there.
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
