//! Response stream of an execution.

use std::mem::take;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until};

use super::budget::Reservation;
use super::context::{Context, KernelSlot};
use super::lines::{self, Output};
use super::output_channel::{Disconnected, OutputSender};
use super::wire::Envelope;
use super::zmtp::MAX_MESSAGE;

/// Keepalive interval (spec). A failed keepalive also reveals a client that vanished silently.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);

/// Notice about possibly missing output.
const MISSING_OUTPUT: &str = "Some output may be missing: the client read too slowly, and \
    the kernel of this language drops unread output";

/// Response stream of an execution.
pub(super) struct ResponseStream {
    /// Output channel.
    pub(super) output_channel: OutputSender,
    /// Execution number, if the kernel reports none.
    pub(super) expected: u64,
    count_sent: bool,
    error_sent: bool,
    /// Notices sent after the first line: why state may be missing.
    pub(super) notices: Vec<String>,
    /// Whether final newlines are sent as separate lines.
    pub(super) split_newlines: bool,
    /// Time of the last line.
    pub(super) last_sent: Instant,
}

impl ResponseStream {
    /// A stream without output yet.
    pub(super) fn new(output_channel: OutputSender) -> Self {
        Self {
            output_channel,
            expected: 1,
            count_sent: false,
            error_sent: false,
            notices: Vec::new(),
            split_newlines: false,
            last_sent: Instant::now(),
        }
    }

    /// Waits for the context, sending keepalives.
    pub(super) async fn acquire(
        &mut self,
        context: &Context,
    ) -> Result<OwnedMutexGuard<KernelSlot>, Disconnected> {
        let turn = context.acquire();
        tokio::pin!(turn);
        loop {
            tokio::select! {
                biased;
                // First: an execution whose client disconnected must not start.
                () = self.output_channel.closed() => return Err(Disconnected),
                slot = &mut turn => return Ok(slot),
                () = sleep_until(self.last_sent + KEEPALIVE) => self.send(lines::KEEPALIVE).await?,
            }
        }
    }

    /// Handles a broadcast message. True if it was the last.
    pub(super) async fn on_message(
        &mut self,
        envelope: Envelope,
        reservation: Reservation,
        count: &mut u64,
    ) -> Result<bool, Disconnected> {
        if envelope.skipped > 0 {
            self.report_oversized(&envelope);
            return Ok(false);
        }
        let now = super::now();
        if self.split_newlines
            && envelope.kind == "stream"
            && let Some(parts) = lines::end_apart(&envelope.content, &now)
        {
            drop(envelope);
            self.send_count();
            for (part, reservation) in parts.into_iter().zip([reservation, Reservation::default()])
            {
                self.output_channel.send(part, reservation).await?;
                self.last_sent = Instant::now();
            }
            return Ok(false);
        }
        let output = lines::read(&envelope.kind, &envelope.content, &now);
        // Free the message while the line waits for budget.
        drop(envelope);
        match output {
            Some(Output::Count(number)) => {
                *count = number;
                self.expected = number;
                self.send_count();
            }
            Some(Output::Line(line)) => {
                self.send_count();
                self.output_channel.send(line, reservation).await?;
                self.last_sent = Instant::now();
            }
            Some(Output::Error(line)) => self.error(line, reservation).await?,
            Some(Output::Idle) => return Ok(true),
            None => {}
        }
        Ok(false)
    }

    fn report_oversized(&mut self, envelope: &Envelope) {
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
    fn send_count(&mut self) {
        if !self.count_sent {
            self.count_sent = true;
            self.output_channel
                .send_with_next(lines::count(self.expected));
            self.last_sent = Instant::now();
            for notice in take(&mut self.notices) {
                self.say(lines::notice(&notice, &super::now()));
            }
        }
    }

    /// Sends an error line, unless one was sent before. Uses the reservation of its source message.
    pub(super) async fn error(
        &mut self,
        line: Vec<u8>,
        reservation: Reservation,
    ) -> Result<(), Disconnected> {
        self.send_count();
        if !self.error_sent {
            self.output_channel.send(line, reservation).await?;
            self.last_sent = Instant::now();
            self.error_sent = true;
        }
        Ok(())
    }

    /// Sends an error of the daemon, without waiting.
    pub(super) fn fail(&mut self, name: &str, text: &str) {
        self.send_count();
        if !std::mem::replace(&mut self.error_sent, true) {
            self.say(lines::error(name, text));
        }
    }

    /// Sends a notice if output may be missing because the client read slowly.
    pub(super) fn notify_missing(&mut self) {
        if self.output_channel.was_blocked() {
            self.send_count();
            self.say(lines::notice(MISSING_OUTPUT, &super::now()));
        }
    }

    /// Sends the final line, without waiting.
    pub(super) fn end(&mut self) {
        self.send_count();
        self.say(lines::END);
    }

    fn say(&mut self, line: impl Into<Bytes>) {
        self.output_channel.send_now(line);
        self.last_sent = Instant::now();
    }

    /// Sends a line.
    pub(super) async fn send(&mut self, line: impl Into<Bytes>) -> Result<(), Disconnected> {
        self.output_channel
            .send(line, Reservation::default())
            .await?;
        self.last_sent = Instant::now();
        Ok(())
    }
}
