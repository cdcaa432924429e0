//! Resumes a paused or parked sandbox for its traffic.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::id::SandboxId;
use shoal_core::routes::{NotResumed, Route};
use tokio::sync::{oneshot, watch};

use super::Sandboxes;
use super::command::{Command, ResumeRequest};
use super::mailbox::Mailbox;
use super::registry::Published;
use shoal_core::ports::sandboxes::SandboxError;

/// The shortest timeout of a sandbox that traffic has resumed (E2B's rule).
const LEAST_WAKE: Duration = Duration::from_secs(300);

impl Sandboxes {
    /// Resumes a paused or parked sandbox. Concurrent callers wait for the same run.
    pub(crate) async fn wake(&self, id: &SandboxId) -> Result<Arc<Route>, NotResumed> {
        let (published, mailbox, waking) = self.registry.sleeper(id).ok_or(NotResumed::Gone)?;
        let mut attempt = waking.join(|ends| {
            // On a task of its own: the first caller may disconnect before the others.
            self.parts.work.spawn(async move {
                let outcome = attempt(published, mailbox).await;
                // All callers may have disconnected.
                let _ = ends.send(Some(outcome));
            });
        });
        let ended = attempt.wait_for(Option::is_some).await;
        let outcome = ended.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or(Err(NotResumed::Gone))
    }
}

async fn attempt(
    published: watch::Receiver<Published>,
    mailbox: Mailbox,
) -> Result<Arc<Route>, NotResumed> {
    let timeout = published.borrow().record.spec.lifecycle.timeout;
    let request = ResumeRequest {
        timeout: timeout.max(LEAST_WAKE),
        memory: true,
        found_paused: true,
    };
    let (reply, answer) = oneshot::channel();
    let sent = mailbox.send_waiting(Command::Wake(request, reply)).await;
    sent.map_err(|_| NotResumed::Gone)?;
    match answer.await.map_err(|_| NotResumed::Gone)? {
        Ok(()) => published.borrow().route.clone().ok_or(NotResumed::Gone),
        Err(SandboxError::Full(full)) => Err(NotResumed::Full(full.to_string())),
        Err(SandboxError::NotFound(_)) => Err(NotResumed::Gone),
        Err(error) => Err(NotResumed::Failed(error.to_string())),
    }
}
