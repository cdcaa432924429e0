//! Follows a kernel's messages of one execution to its end.
//!
//! The end is signalled twice: by an `idle` status on the broadcast channel, after all output, and
//! by a reply on the request channel. A kernel that drops unread output may drop the `idle` status.
//! Finished code may leave timers that keep printing.

use std::time::Duration;

use tokio::task::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::{ExecutionEnd, ResponseStream};
use crate::interpreter::budget::Reservation;
use crate::interpreter::kernel::{EmptyContent, Kernel, TRAILING_OUTPUT_TIMEOUT};
use crate::interpreter::lines::{self, Output};
use crate::interpreter::response_stream::KEEPALIVE;
use crate::interpreter::wire::Envelope;
use crate::interpreter::zmtp::{ConnectionError, Message};

/// Limit of messages in flight when a kernel that drops output replies. Its queue holds a thousand,
/// and the connection's buffers hold fewer than this many of the shortest messages.
const MAX_IN_FLIGHT: usize = 1 << 17;

/// How a kernel signals the end of an execution.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KernelTraits {
    /// It may send results after its `idle` status.
    pub(super) late_results: bool,
    /// It never drops messages.
    pub(super) holds_output: bool,
}

/// Progress of an execution.
struct Progress<'a> {
    id: &'a str,
    traits: KernelTraits,
    /// Pending fence requests. When the kernel is idle after one, all earlier output has arrived.
    fences: Vec<String>,
    /// Whether all output has arrived.
    complete: bool,
    answer: Option<ReplyState>,
    /// Why no reply can arrive any more.
    reply_error: Option<String>,
}

/// The kernel's reply, and timers for remaining output.
struct ReplyState {
    error: Option<Vec<u8>>,
    /// End if nothing more arrives until then.
    last: Instant,
    /// Next fence request.
    ask: Instant,
    /// Interval before that request.
    pause: Duration,
    /// Messages received since the reply.
    messages_since: usize,
}

/// The next event.
enum Event {
    Replied(Message),
    /// The request channel is closed.
    Mute(ConnectionError),
    Heard(Message),
    /// The keepalive timer elapsed.
    Silence,
    /// The fence timer elapsed.
    Ask,
    /// The timer for remaining output elapsed.
    Last,
}

/// Streams output to the client until the execution is complete.
pub(super) async fn follow(
    kernel: &mut Kernel,
    id: &str,
    traits: KernelTraits,
    response: &mut ResponseStream,
) -> Result<(), ExecutionEnd> {
    response.expected = kernel.count + 1;
    let mut progress = Progress {
        id,
        traits,
        fences: Vec::new(),
        complete: false,
        answer: None,
        reply_error: None,
    };
    while !progress.complete || progress.answer.is_none() {
        match progress.next(kernel, response).await? {
            Event::Replied(message) => progress.on_reply(kernel, &message, response),
            // Deliver earlier output first: a kernel that exits closes all its connections.
            Event::Mute(why) => progress.reply_error = Some(why.to_string()),
            Event::Heard(message) => progress.on_broadcast(kernel, message, response).await?,
            Event::Silence => response.send(lines::KEEPALIVE).await?,
            Event::Ask => progress.send_fence(kernel).await?,
            // The rest of a message follows once there is budget.
            Event::Last if kernel.iopub.is_partial() => progress.wait(),
            Event::Last => break,
        }
    }
    if let Some(error) = progress.answer.and_then(|answer| answer.error) {
        response.error(error, Reservation::default()).await?;
    }
    Ok(())
}

impl Progress<'_> {
    async fn next(
        &self,
        kernel: &mut Kernel,
        response: &ResponseStream,
    ) -> Result<Event, ExecutionEnd> {
        let Kernel {
            process,
            iopub,
            shell,
            ..
        } = kernel;
        let answer = self.answer.as_ref();
        let asks = answer.filter(|answer| !self.traits.holds_output && answer.messages_since > 0);
        let listens = answer.is_none() && self.reply_error.is_none();
        let at = |moment: Option<Instant>| sleep_until(moment.unwrap_or_else(Instant::now));
        Ok(tokio::select! {
            // Biased, so that endless output does not starve the client's disconnect and the
            // keepalives.
            biased;
            () = response.output_channel.closed() => return Err(ExecutionEnd::Disconnected),
            // `next_short` needs no budget: long parts of a reply were broadcast already.
            message = shell.next_short(), if listens => message.map_or_else(Event::Mute, Event::Replied),
            () = at(asks.map(|answer| answer.ask)), if asks.is_some() => Event::Ask,
            message = iopub.next(), if !self.complete => Event::Heard(message?),
            // Subject to tokio's cooperative budget, as reading the connection is.
            () = consume_budget(), if self.reply_error.is_some() => {
                return Err(ExecutionEnd::KernelLost(self.reply_error.clone().unwrap_or_default()));
            }
            status = process.ended() => {
                return Err(ExecutionEnd::KernelLost(format!("the kernel ended ({status})")));
            }
            () = sleep_until(response.last_sent + KEEPALIVE) => Event::Silence,
            () = at(answer.map(|answer| answer.last)), if answer.is_some() => Event::Last,
        })
    }

    fn on_reply(&mut self, kernel: &mut Kernel, message: &Message, response: &mut ResponseStream) {
        let envelope = kernel.session.open(message);
        let Some(envelope) = envelope.filter(|envelope| envelope.parent == self.id) else {
            return;
        };
        let reply = lines::reply(&envelope.content);
        kernel.count = reply.count.unwrap_or(kernel.count);
        response.expected = kernel.count;
        let last = Instant::now() + TRAILING_OUTPUT_TIMEOUT;
        self.answer = Some(ReplyState {
            error: reply.error,
            last,
            ask: last,
            pause: TRAILING_OUTPUT_TIMEOUT,
            messages_since: 0,
        });
    }

    async fn on_broadcast(
        &mut self,
        kernel: &mut Kernel,
        mut message: Message,
        response: &mut ResponseStream,
    ) -> Result<(), ExecutionEnd> {
        let reservation = std::mem::take(&mut message.reservation);
        if reservation.had_to_wait() {
            response.output_channel.mark_blocked();
        }
        if let Some(answer) = &mut self.answer {
            answer.messages_since += 1;
            self.complete = answer.messages_since > MAX_IN_FLIGHT && !self.traits.holds_output;
        }
        let opened = kernel.session.open(&message);
        drop(message);
        let Some(envelope) = opened else {
            return Ok(());
        };
        if envelope.parent == self.id {
            let idle = response
                .on_message(envelope, reservation, &mut kernel.count)
                .await?;
            // More output may follow.
            self.wait();
            if idle && self.traits.late_results {
                self.fence(kernel).await?;
            } else {
                self.complete |= idle;
            }
        } else if self.fences.contains(&envelope.parent) {
            self.complete |= is_idle(&envelope);
        }
        Ok(())
    }

    /// Extends the timer for remaining output.
    fn wait(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.last = Instant::now() + TRAILING_OUTPUT_TIMEOUT;
        }
    }

    /// Sends a fence request if the end did not arrive soon, because it may have been dropped. The
    /// answer may be dropped too while the client reads slowly, so requests repeat with backoff.
    async fn send_fence(&mut self, kernel: &mut Kernel) -> Result<(), ExecutionEnd> {
        if let Some(answer) = &mut self.answer {
            answer.pause *= 2;
            answer.ask = Instant::now() + answer.pause;
        }
        self.fence(kernel).await
    }

    /// Sends a request without side effects.
    async fn fence(&mut self, kernel: &mut Kernel) -> Result<(), ExecutionEnd> {
        let (id, frames) = kernel
            .session
            .request("kernel_info_request", &EmptyContent {});
        kernel.shell.send(&frames).await?;
        self.fences.push(id);
        Ok(())
    }
}

/// Whether a message is an `idle` status.
fn is_idle(envelope: &Envelope) -> bool {
    lines::read(&envelope.kind, &envelope.content, "") == Some(Output::Idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::budget::Budget;
    use crate::interpreter::output_channel::channel;
    use crate::interpreter::tests::fake;

    /// Whether an execution is complete after `messages_since` messages since its reply, and one more.
    async fn is_complete(traits: KernelTraits, messages_since: usize) -> bool {
        let (mut kernel, _fake) = fake::kernel().await;
        let (output_channel, _body) = channel(&Budget::default());
        let now = Instant::now();
        let mut progress = Progress {
            id: "x",
            traits,
            fences: Vec::new(),
            complete: false,
            answer: Some(ReplyState {
                error: None,
                last: now,
                ask: now,
                pause: TRAILING_OUTPUT_TIMEOUT,
                messages_since,
            }),
            reply_error: None,
        };
        let mut response = ResponseStream::new(output_channel);
        let handled = progress.on_broadcast(&mut kernel, Message::default(), &mut response);
        assert!(handled.await.is_ok());
        progress.complete
    }

    #[tokio::test]
    async fn endless_output_ends_an_execution_unless_the_kernel_holds_output() {
        let holds_output = KernelTraits {
            holds_output: true,
            ..KernelTraits::default()
        };
        assert!(!is_complete(KernelTraits::default(), MAX_IN_FLIGHT - 1).await);
        assert!(is_complete(KernelTraits::default(), MAX_IN_FLIGHT).await);
        assert!(!is_complete(holds_output, MAX_IN_FLIGHT).await);
    }
}
