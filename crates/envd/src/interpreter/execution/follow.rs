//! Follows a kernel's messages of one execution to its end.
//!
//! The end is signalled twice: by an `idle` status on the broadcast channel, after all output, and
//! by a reply on the request channel. A kernel that drops unread output may drop the `idle` status.
//! Finished code may leave timers that keep printing.

use std::time::Duration;

use tokio::task::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::{End, Telling};
use crate::interpreter::budget::Room;
use crate::interpreter::kernel::{Kernel, LAST, Nothing};
use crate::interpreter::lines::{self, Output};
use crate::interpreter::telling::KEEPALIVE;
use crate::interpreter::wire::Envelope;
use crate::interpreter::zmtp::{Broken, Message};

/// Limit of messages in flight when a kernel that drops output replies. Its queue holds a thousand,
/// and the connection's buffers hold fewer than this many of the shortest messages.
const MOST_BEHIND: usize = 1 << 17;

/// How a kernel signals the end of an execution.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manner {
    /// It may send results after its `idle` status.
    pub(super) late: bool,
    /// It never drops messages.
    pub(super) holds: bool,
}

/// Progress of an execution.
struct Course<'a> {
    id: &'a str,
    manner: Manner,
    /// Pending fence requests. When the kernel is idle after one, all earlier output has arrived.
    fences: Vec<String>,
    /// Whether all output has arrived.
    over: bool,
    answer: Option<Answer>,
    /// Why no reply can arrive any more.
    mute: Option<String>,
}

/// The kernel's reply, and timers for remaining output.
struct Answer {
    error: Option<Vec<u8>>,
    /// End if nothing more arrives until then.
    last: Instant,
    /// Next fence request.
    ask: Instant,
    /// Interval before that request.
    pause: Duration,
    /// Messages received since the reply.
    behind: usize,
}

/// The next event.
enum Event {
    Replied(Message),
    /// The request channel is closed.
    Mute(Broken),
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
    manner: Manner,
    telling: &mut Telling,
) -> Result<(), End> {
    telling.expected = kernel.count + 1;
    let mut course = Course {
        id,
        manner,
        fences: Vec::new(),
        over: false,
        answer: None,
        mute: None,
    };
    while !course.over || course.answer.is_none() {
        match course.next(kernel, telling).await? {
            Event::Replied(message) => course.reply(kernel, &message, telling),
            // Deliver earlier output first: a kernel that exits closes all its connections.
            Event::Mute(why) => course.mute = Some(why.to_string()),
            Event::Heard(message) => course.hear(kernel, message, telling).await?,
            Event::Silence => telling.send(lines::KEEPALIVE).await?,
            Event::Ask => course.ask(kernel).await?,
            // The rest of a message follows once there is budget.
            Event::Last if kernel.heard.is_midway() => course.wait(),
            Event::Last => break,
        }
    }
    if let Some(error) = course.answer.and_then(|answer| answer.error) {
        telling.error(error, Room::default()).await?;
    }
    Ok(())
}

impl Course<'_> {
    async fn next(&self, kernel: &mut Kernel, telling: &Telling) -> Result<Event, End> {
        let Kernel {
            life, heard, shell, ..
        } = kernel;
        let answer = self.answer.as_ref();
        let asks = answer.filter(|answer| !self.manner.holds && answer.behind > 0);
        let listens = answer.is_none() && self.mute.is_none();
        let at = |moment: Option<Instant>| sleep_until(moment.unwrap_or_else(Instant::now));
        Ok(tokio::select! {
            // Biased, so that endless output does not starve the client's disconnect and the
            // keepalives.
            biased;
            () = telling.feed.closed() => return Err(End::Left),
            // `next_short` needs no budget: long parts of a reply were broadcast already.
            message = shell.next_short(), if listens => message.map_or_else(Event::Mute, Event::Replied),
            () = at(asks.map(|answer| answer.ask)), if asks.is_some() => Event::Ask,
            message = heard.next(), if !self.over => Event::Heard(message?),
            // Subject to tokio's cooperative budget, as reading the connection is.
            () = consume_budget(), if self.mute.is_some() => {
                return Err(End::Lost(self.mute.clone().unwrap_or_default()));
            }
            status = life.ended() => {
                return Err(End::Lost(format!("the kernel ended ({status})")));
            }
            () = sleep_until(telling.silence + KEEPALIVE) => Event::Silence,
            () = at(answer.map(|answer| answer.last)), if answer.is_some() => Event::Last,
        })
    }

    fn reply(&mut self, kernel: &mut Kernel, message: &Message, telling: &mut Telling) {
        let envelope = kernel.session.open(message);
        let Some(envelope) = envelope.filter(|envelope| envelope.parent == self.id) else {
            return;
        };
        let reply = lines::reply(&envelope.content);
        kernel.count = reply.count.unwrap_or(kernel.count);
        telling.expected = kernel.count;
        let last = Instant::now() + LAST;
        self.answer = Some(Answer {
            error: reply.error,
            last,
            ask: last,
            pause: LAST,
            behind: 0,
        });
    }

    async fn hear(
        &mut self,
        kernel: &mut Kernel,
        mut message: Message,
        telling: &mut Telling,
    ) -> Result<(), End> {
        let room = std::mem::take(&mut message.room);
        if room.was_waited_for() {
            telling.feed.note_held();
        }
        if let Some(answer) = &mut self.answer {
            answer.behind += 1;
            self.over = answer.behind > MOST_BEHIND && !self.manner.holds;
        }
        let opened = kernel.session.open(&message);
        drop(message);
        let Some(envelope) = opened else {
            return Ok(());
        };
        if envelope.parent == self.id {
            let idle = telling.hear(envelope, room, &mut kernel.count).await?;
            // More output may follow.
            self.wait();
            if idle && self.manner.late {
                self.fence(kernel).await?;
            } else {
                self.over |= idle;
            }
        } else if self.fences.contains(&envelope.parent) {
            self.over |= is_idle(&envelope);
        }
        Ok(())
    }

    /// Extends the timer for remaining output.
    fn wait(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.last = Instant::now() + LAST;
        }
    }

    /// Sends a fence request if the end did not arrive soon, because it may have been dropped. The
    /// answer may be dropped too while the client reads slowly, so requests repeat with backoff.
    async fn ask(&mut self, kernel: &mut Kernel) -> Result<(), End> {
        if let Some(answer) = &mut self.answer {
            answer.pause *= 2;
            answer.ask = Instant::now() + answer.pause;
        }
        self.fence(kernel).await
    }

    /// Sends a request without side effects.
    async fn fence(&mut self, kernel: &mut Kernel) -> Result<(), End> {
        let (id, frames) = kernel.session.request("kernel_info_request", &Nothing {});
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
    use crate::interpreter::fake;
    use crate::interpreter::feed::feed;

    /// Whether an execution is over after `behind` messages since its reply, and one more.
    async fn is_over(manner: Manner, behind: usize) -> bool {
        let (mut kernel, _fake) = fake::kernel().await;
        let (feed, _body) = feed(&Budget::default());
        let now = Instant::now();
        let mut course = Course {
            id: "x",
            manner,
            fences: Vec::new(),
            over: false,
            answer: Some(Answer {
                error: None,
                last: now,
                ask: now,
                pause: LAST,
                behind,
            }),
            mute: None,
        };
        let mut telling = Telling::new(feed);
        let heard = course.hear(&mut kernel, Message::default(), &mut telling);
        assert!(heard.await.is_ok());
        course.over
    }

    #[tokio::test]
    async fn endless_output_ends_an_execution_unless_the_kernel_holds_output() {
        let holds = Manner {
            holds: true,
            ..Manner::default()
        };
        assert!(!is_over(Manner::default(), MOST_BEHIND - 1).await);
        assert!(is_over(Manner::default(), MOST_BEHIND).await);
        assert!(!is_over(holds, MOST_BEHIND).await);
    }
}
