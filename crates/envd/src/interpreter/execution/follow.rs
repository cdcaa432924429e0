//! What a kernel says of one execution, until it has said everything.
//!
//! Two connections tell of the end: the one that everybody hears, on which a kernel is idle once it
//! has said all, and the one on which it replies. A kernel that drops what nobody takes may drop the
//! first of them, and code that it has done may leave timers behind that go on to print.

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

/// The most messages that may be on their way when a kernel replies that drops what does not fit. Its
/// queue has a thousand, and the buffers of the connection have fewer than this of the shortest.
const MOST_BEHIND: usize = 1 << 17;

/// How a kernel tells that it has said everything.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manner {
    /// It may say more after it said that it is idle.
    pub(super) late: bool,
    /// It drops nothing, its end included.
    pub(super) holds: bool,
}

/// How far an execution has come.
struct Course<'a> {
    id: &'a str,
    manner: Manner,
    /// What the kernel was asked behind it: once it is idle again, what came before has come.
    fences: Vec<String>,
    /// Whether everything has been said.
    over: bool,
    answer: Option<Answer>,
    /// Why no answer can come any more.
    mute: Option<String>,
}

/// What a kernel replied, and how long the rest is waited for.
struct Answer {
    error: Option<Vec<u8>>,
    /// When it is over if nothing more comes.
    last: Instant,
    /// When the kernel is asked whether all has come.
    ask: Instant,
    /// How long it was not asked before that.
    pause: Duration,
    /// How many messages have come since.
    behind: usize,
}

/// What happens.
enum Event {
    Replied(Message),
    /// The kernel cannot reply.
    Mute(Broken),
    Heard(Message),
    /// The client has heard nothing for long.
    Silence,
    /// The kernel has replied and goes on to speak.
    Ask,
    /// The kernel has replied and says no more.
    Last,
}

/// Tells the client what the kernel says, until it has said everything.
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
            // What it said before is told first: a kernel that ends closes all its connections.
            Event::Mute(why) => course.mute = Some(why.to_string()),
            Event::Heard(message) => course.hear(kernel, message, telling).await?,
            Event::Silence => telling.send(lines::KEEPALIVE).await?,
            Event::Ask => course.ask(kernel).await?,
            // The rest of a message comes, once there is room for it.
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
            // Who prints without end keeps nothing waiting but his own end and the signs of life.
            biased;
            () = telling.feed.closed() => return Err(End::Left),
            // Short, so that it needs no room: what is long in a reply has been heard.
            message = shell.next_short(), if listens => message.map_or_else(Event::Mute, Event::Replied),
            () = at(asks.map(|answer| answer.ask)), if asks.is_some() => Event::Ask,
            message = heard.next(), if !self.over => Event::Heard(message?),
            // Pending like the connection, where a task has had its turn.
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
            // Where something comes, more may.
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

    /// Gives more time for what may come.
    fn wait(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.last = Instant::now() + LAST;
        }
    }

    /// Asks the kernel whether all has come, where its end did not come soon: that may have been
    /// dropped. So may the answer, as long as its client reads slowly, so it is asked again, less and
    /// less often.
    async fn ask(&mut self, kernel: &mut Kernel) -> Result<(), End> {
        if let Some(answer) = &mut self.answer {
            answer.pause *= 2;
            answer.ask = Instant::now() + answer.pause;
        }
        self.fence(kernel).await
    }

    /// Asks something that changes nothing.
    async fn fence(&mut self, kernel: &mut Kernel) -> Result<(), End> {
        let (id, frames) = kernel.session.request("kernel_info_request", &Nothing {});
        kernel.shell.send(&frames).await?;
        self.fences.push(id);
        Ok(())
    }
}

/// Whether a message says that its kernel has done what was asked.
fn is_idle(envelope: &Envelope) -> bool {
    lines::read(&envelope.kind, &envelope.content, "") == Some(Output::Idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::budget::Budget;
    use crate::interpreter::fake;
    use crate::interpreter::feed::feed;

    /// Whether an execution is over after so many messages behind its reply, and one more.
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
    async fn who_prints_for_ever_does_not_keep_an_execution_where_its_end_may_be_dropped() {
        let holds = Manner {
            holds: true,
            ..Manner::default()
        };
        assert!(!is_over(Manner::default(), MOST_BEHIND - 1).await);
        assert!(is_over(Manner::default(), MOST_BEHIND).await);
        assert!(!is_over(holds, MOST_BEHIND).await);
    }
}
