//! An execution: queueing, environment, output and end.

mod follow;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use self::follow::{KernelTraits, follow};

use super::context::{Context, KernelSlot};
use super::environment::{INTERNAL_TIMEOUT, prepare, restore, run_startup, wanted};
use super::kernel::{Kernel, Launcher, PendingReply, TRAILING_OUTPUT_TIMEOUT};
use super::output_channel::{Disconnected, OutputSender};
use super::response_stream::ResponseStream;
use super::variables::Dialect;
use super::zmtp::ConnectionError;
use crate::settings::Variables;

/// Time for a kernel to stop after an interrupt. It loses its state when the time is over, and a busy machine may need
/// seconds for Python's first traceback.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between interrupts.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(700);

/// An execution request.
pub(super) struct ExecutionSpec {
    /// The code.
    pub(super) code: String,
    /// Variables of this execution.
    pub(super) variables: Variables,
    /// Memory reserved for the code while it is queued.
    pub(super) reservation: Option<OwnedSemaphorePermit>,
}

/// How an execution ended.
pub(super) enum ExecutionEnd {
    /// Completed.
    Completed,
    /// The client disconnected.
    Disconnected,
    /// The kernel exited or does not respond.
    KernelLost(String),
}

impl From<Disconnected> for ExecutionEnd {
    fn from(_: Disconnected) -> Self {
        Self::Disconnected
    }
}

impl From<ConnectionError> for ExecutionEnd {
    fn from(broken: ConnectionError) -> Self {
        Self::KernelLost(broken.to_string())
    }
}

/// Runs an execution and streams its output. Frees its slot in the queue at the end.
pub(super) async fn run(
    context: Arc<Context>,
    launcher: Arc<Launcher>,
    spec: ExecutionSpec,
    output_channel: OutputSender,
    _queue_slot: OwnedSemaphorePermit,
) {
    let mut response = ResponseStream::new(output_channel);
    let Ok(mut slot) = response.acquire(&context).await else {
        return;
    };
    let variables = spec.variables.clone();
    let end = execute(&mut slot, &context, &launcher, spec, &mut response).await;
    match end {
        ExecutionEnd::Completed => {
            if !context.holds_output() {
                response.notify_missing();
            }
            response.end();
            // The response ends here, before the context is free again.
            drop(response);
            restore(&mut slot, &context, &launcher, &variables).await;
        }
        ExecutionEnd::Disconnected => {
            if stop(&mut slot, &context, &launcher).await {
                restore(&mut slot, &context, &launcher, &variables).await;
            }
        }
        ExecutionEnd::KernelLost(why) => {
            let (name, text) = if context.is_deleted() {
                ("UnexpectedEndOfExecution", "The context was deleted")
            } else {
                ("ContextRestarting", "Context was restarted")
            };
            response.fail(name, &format!("{text}: {why}"));
            response.end();
            drop(response);
            slot.end_kernel(None);
            // Restarts the kernel now, so that the next execution need not wait. An error recurs
            // then and is reported to it.
            let _ = slot.kernel(&context, &launcher).await;
        }
    }
}

async fn execute(
    slot: &mut KernelSlot,
    context: &Context,
    launcher: &Launcher,
    spec: ExecutionSpec,
    response: &mut ResponseStream,
) -> ExecutionEnd {
    if let Err(failure) = slot.kernel(context, launcher).await {
        let text = format!("The kernel cannot be started: {failure}");
        response.fail("UnexpectedEndOfExecution", &text);
        return ExecutionEnd::Completed;
    }
    response.notices.extend(slot.notice.take());
    let kernel = match slot.kernel(context, launcher).await {
        Ok(kernel) => kernel,
        Err(failure) => return ExecutionEnd::KernelLost(failure.to_string()),
    };
    kernel
        .oom_guard
        .get_or_insert_with(|| launcher.oom_killer.track_active());
    let wanted = wanted(kernel, launcher, spec.variables);
    let executed = async {
        response
            .notices
            .extend(run_startup(kernel, launcher).await?);
        if let Some(failed_changes) = prepare(kernel, context, launcher, wanted).await? {
            response.notices.push(failed_changes);
        }
        let sent = kernel.execute(&spec.code, false);
        let sent = launcher.time.timeout(INTERNAL_TIMEOUT, sent).await;
        let id = sent.ok_or_else(|| {
            ExecutionEnd::KernelLost("the kernel accepts no requests".to_owned())
        })??;
        drop(spec.code);
        drop(spec.reservation);
        let traits = KernelTraits {
            late_results: context.dialect().is_some_and(Dialect::has_late_results),
            holds_output: context.holds_output(),
        };
        response.split_newlines = context.dialect().is_some_and(Dialect::splits_newlines);
        follow(kernel, &id, traits, response).await
    };
    let end = tokio::select! {
        biased;
        // Checked also while output is blocked by a client that stopped reading.
        () = context.end_requested() => Err(ExecutionEnd::KernelLost("restart requested".to_owned())),
        end = executed => end,
    };
    match end {
        Ok(()) => ExecutionEnd::Completed,
        Err(ExecutionEnd::KernelLost(why)) => {
            ExecutionEnd::KernelLost(exit_reason(kernel, launcher).await.unwrap_or(why))
        }
        Err(end) => end,
    }
}

/// How a kernel ended whose connection broke. The connection closes shortly before the exit is
/// known.
async fn exit_reason(kernel: &mut Kernel, launcher: &Launcher) -> Option<String> {
    let status = timeout(TRAILING_OUTPUT_TIMEOUT, kernel.process.ended())
        .await
        .ok()?;
    if launcher.oom_killer.take_killed(kernel.leader()) {
        return Some("the kernel was killed: it used up the sandbox's memory".to_owned());
    }
    Some(format!("the kernel ended ({status})"))
}

/// Interrupts a kernel after its client disconnected. One that does not stop is ended.
async fn stop(slot: &mut KernelSlot, context: &Context, launcher: &Launcher) -> bool {
    let Ok(kernel) = slot.kernel(context, launcher).await else {
        return false;
    };
    let stopped = async {
        kernel.interrupt().await?;
        // Requests are handled in order: an answer to this one means that the kernel has stopped.
        let mut after = PendingReply::of(kernel.execute("", true).await?);
        loop {
            if let Ok(reply) = timeout(INTERRUPT_INTERVAL, kernel.wait_reply(&mut after)).await {
                return reply;
            }
            // The first interrupt may have preceded the code. A kernel that has stopped must not be
            // interrupted again: R would exit.
            if !after.has_begun() {
                kernel.interrupt().await?;
            }
        }
    };
    let why = match launcher.time.timeout(STOP_TIMEOUT, stopped).await {
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
