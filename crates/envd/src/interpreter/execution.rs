//! An execution: queueing, environment, output and end.

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

/// Time for a kernel to stop after an interrupt.
const STOP: Duration = Duration::from_secs(4);

/// Interval between interrupts.
const AGAIN: Duration = Duration::from_millis(700);

/// An execution request.
pub(super) struct Order {
    /// The code.
    pub(super) code: String,
    /// Variables of this execution.
    pub(super) variables: Variables,
    /// Memory reserved for the code while it is queued.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// How an execution ended.
pub(super) enum End {
    /// Completed.
    Done,
    /// The client disconnected.
    Left,
    /// The kernel exited or does not respond.
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

/// Runs an execution and streams its output. Frees its slot in the queue at the end.
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
            // The response ends here, before the context is free again.
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
            // Restarts the kernel now, so that the next execution need not wait. An error recurs
            // then and is reported to it.
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
        let id = sent.ok_or_else(|| End::Lost("the kernel accepts no requests".to_owned()))??;
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
        // Checked also while output is blocked by a client that stopped reading.
        () = context.is_to_end() => Err(End::Lost("restart requested".to_owned())),
        end = executed => end,
    };
    match end {
        Ok(()) => End::Done,
        Err(End::Lost(why)) => End::Lost(how_it_ended(kernel, launcher).await.unwrap_or(why)),
        Err(end) => end,
    }
}

/// How a kernel ended whose connection broke. The connection closes shortly before the exit is
/// known.
async fn how_it_ended(kernel: &mut Kernel, launcher: &Launcher) -> Option<String> {
    let status = timeout(LAST, kernel.life.ended()).await.ok()?;
    if launcher.want.has_ended(kernel.leader()) {
        return Some("the kernel was killed: it used up the sandbox's memory".to_owned());
    }
    Some(format!("the kernel ended ({status})"))
}

/// Interrupts a kernel after its client disconnected. One that does not stop is ended.
async fn stop(slot: &mut Slot, context: &Context, launcher: &Launcher) -> bool {
    let Ok(kernel) = slot.kernel(context, launcher).await else {
        return false;
    };
    let stopped = async {
        kernel.interrupt().await?;
        // Requests are handled in order: an answer to this one means that the kernel has stopped.
        let mut after = Awaited::of(kernel.execute("", true).await?);
        loop {
            if let Ok(replied) = timeout(AGAIN, kernel.replied(&mut after)).await {
                return replied;
            }
            // The first interrupt may have preceded the code. A kernel that has stopped must not be
            // interrupted again: R would exit.
            if !after.has_begun() {
                kernel.interrupt().await?;
            }
        }
    };
    let why = match launcher.time.timeout(STOP, stopped).await {
        Some(Ok(())) => return true,
        Some(Err(_)) => "its kernel exited when interrupted",
        None => "it did not stop when interrupted",
    };
    slot.end_kernel(Some(format!("The context was restarted: {why}")));
    // Restarts the kernel now, so that the next execution need not wait. An error recurs then and
    // is reported to it.
    let _ = slot.kernel(context, launcher).await;
    false
}

#[cfg(test)]
mod tests;
