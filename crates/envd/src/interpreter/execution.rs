//! One execution: its turn, its environment, what its kernel says, and its end.

mod follow;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use self::follow::{Manner, follow};

use super::context::{Context, Slot};
use super::environment::{SILENT, prepare, restore, set_up, wanted};
use super::feed::{Feed, Left};
use super::kernel::{Awaited, Kernel, LAST, Launcher};
use super::telling::Telling;
use super::variables::Dialect;
use super::zmtp::Broken;
use crate::settings::Variables;

/// How long a kernel may go on after it was told to stop.
const STOP: Duration = Duration::from_secs(4);

/// After what time it is told again.
const AGAIN: Duration = Duration::from_millis(700);

/// What is executed.
pub(super) struct Order {
    /// The code.
    pub(super) code: String,
    /// Variables for this execution alone.
    pub(super) variables: Variables,
    /// The room that the code takes while it waits.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// How an execution ended.
pub(super) enum End {
    /// As it should.
    Done,
    /// Its client has gone.
    Left,
    /// Its kernel ended, or says nothing any more.
    Lost(String),
}

impl From<Left> for End {
    fn from(_: Left) -> Self {
        Self::Left
    }
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        Self::Lost(broken.to_string())
    }
}

/// Executes something and tells of it. The place in the queue is given up at the end.
pub(super) async fn run(
    context: Arc<Context>,
    launcher: Arc<Launcher>,
    order: Order,
    feed: Feed,
    _place: OwnedSemaphorePermit,
) {
    let mut telling = Telling::new(feed);
    let Ok(mut slot) = telling.turn(&context).await else {
        return;
    };
    let variables = order.variables.clone();
    let end = execute(&mut slot, &context, &launcher, order, &mut telling).await;
    match end {
        End::Done => {
            if !context.holds_output() {
                telling.admit();
            }
            telling.end();
            // The answer ends here, and not when the context is free for the next.
            drop(telling);
            restore(&mut slot, &context, &launcher, &variables).await;
        }
        End::Left => {
            if stop(&mut slot, &context, &launcher).await {
                restore(&mut slot, &context, &launcher, &variables).await;
            }
        }
        End::Lost(why) => {
            let (name, text) = if context.is_deleted() {
                ("UnexpectedEndOfExecution", "The context was deleted")
            } else {
                ("ContextRestarting", "Context was restarted")
            };
            telling.fail(name, &format!("{text}: {why}"));
            telling.end();
            drop(telling);
            slot.end_kernel(None);
            // So that the next one need not wait. What fails now is told to it then.
            let _ = slot.kernel(&context, &launcher).await;
        }
    }
}

async fn execute(
    slot: &mut Slot,
    context: &Context,
    launcher: &Launcher,
    order: Order,
    telling: &mut Telling,
) -> End {
    if let Err(failure) = slot.kernel(context, launcher).await {
        let text = format!("The kernel cannot be started: {failure}");
        telling.fail("UnexpectedEndOfExecution", &text);
        return End::Done;
    }
    telling.notices.extend(slot.notice.take());
    let kernel = match slot.kernel(context, launcher).await {
        Ok(kernel) => kernel,
        Err(failure) => return End::Lost(failure.to_string()),
    };
    kernel.guarded.get_or_insert_with(|| launcher.want.busy());
    let wanted = wanted(kernel, launcher, order.variables);
    let executed = async {
        telling.notices.extend(set_up(kernel, launcher).await?);
        if let Some(refused) = prepare(kernel, context, launcher, wanted).await? {
            telling.notices.push(refused);
        }
        let sent = kernel.execute(&order.code, false);
        let sent = launcher.time.timeout(SILENT, sent).await;
        let id = sent.ok_or_else(|| End::Lost("the kernel takes no requests".to_owned()))??;
        drop(order.code);
        drop(order.room);
        let manner = Manner {
            late: context.dialect().is_some_and(Dialect::is_late),
            holds: context.holds_output(),
        };
        telling.ends_apart = context.dialect().is_some_and(Dialect::tells_ends_apart);
        follow(kernel, &id, manner, telling).await
    };
    let end = tokio::select! {
        biased;
        // Also while its client is waited for, which may have stopped reading.
        () = context.is_to_end() => Err(End::Lost("it was to end".to_owned())),
        end = executed => end,
    };
    match end {
        Ok(()) => End::Done,
        Err(End::Lost(why)) => End::Lost(how_it_ended(kernel, launcher).await.unwrap_or(why)),
        Err(end) => end,
    }
}

/// How a kernel ended whose connection broke: the one comes a moment before the other.
async fn how_it_ended(kernel: &mut Kernel, launcher: &Launcher) -> Option<String> {
    let status = timeout(LAST, kernel.life.ended()).await.ok()?;
    if launcher.want.has_ended(kernel.leader()) {
        return Some("the kernel was ended: it used up the sandbox's memory".to_owned());
    }
    Some(format!("the kernel ended ({status})"))
}

/// Stops what a kernel does for nobody. One that goes on is ended.
async fn stop(slot: &mut Slot, context: &Context, launcher: &Launcher) -> bool {
    let Ok(kernel) = slot.kernel(context, launcher).await else {
        return false;
    };
    let stopped = async {
        kernel.interrupt().await?;
        // It takes requests one after the other: once it answers this one, it has stopped.
        let mut after = Awaited::of(kernel.execute("", true).await?);
        loop {
            if let Ok(replied) = timeout(AGAIN, kernel.replied(&mut after)).await {
                return replied;
            }
            // It may not have begun when it was told. One that has stopped must not be told again: R
            // would end.
            if !after.has_begun() {
                kernel.interrupt().await?;
            }
        }
    };
    let why = match launcher.time.timeout(STOP, stopped).await {
        Some(Ok(())) => return true,
        Some(Err(_)) => "its kernel ended when it was interrupted",
        None => "it did not stop when it was interrupted",
    };
    slot.end_kernel(Some(format!("The context was restarted: {why}")));
    // So that the next one need not wait. What fails now is told to it then.
    let _ = slot.kernel(context, launcher).await;
    false
}

#[cfg(test)]
mod tests;
