//! The return of a claimed sandbox to its pool. It gets a new pod: nothing of its last user remains in it.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use shoal_crds::kruise::names::{annotation, condition, label, reason};
use shoal_crds::kruise::{Sandbox, SandboxPhase, SandboxSet, duration};

use self::plan::Next;
use super::pod::Blueprint;
use super::{SandboxController, Step, children};
use crate::conditions::{self, State, Truth};
use crate::failure::Failure;
use crate::kruise::{Pod, write};

/// How often a return that waits for its pod looks at the clock.
const LOOK: Duration = Duration::from_secs(5);

impl SandboxController {
    /// Does one step of a return. `None` when the sandbox is not being returned.
    pub(super) async fn recycle(
        &self,
        sandbox: &Arc<Sandbox>,
        blueprint: &Blueprint,
        pod: Option<&Arc<Pod>>,
        foreign: &mut Option<String>,
    ) -> Result<Option<Step>, Failure> {
        let set = self.pool(sandbox);
        let seen = children::seen(sandbox, pod, foreign);
        let next = plan::next(
            sandbox,
            set.as_deref(),
            seen,
            Timestamp::now(),
            self.recycle_timeout,
        );
        self.tell(sandbox, &next).await?;
        match next {
            Next::Nothing | Next::Reject(_) => return Ok(None),
            Next::Rest => return Ok(Some(Step::Rest(None))),
            Next::Wait => return Ok(Some(Step::Rest(Some(LOOK.min(self.recycle_timeout))))),
            Next::Begin | Next::Complete | Next::Succeed => {}
            Next::DeletePod => {
                let grace = Some(children::PAUSE_GRACE_SECONDS);
                if let Some(pod) = pod {
                    write::delete(&self.cluster, &self.pods, &**pod, grace, false).await?;
                }
            }
            Next::Reset(patch) | Next::Return(patch) => {
                self.patch(sandbox, &patch).await?;
            }
            Next::CreatePod => *foreign = self.create_pod(sandbox, blueprint).await?,
            Next::Fail(..) => self.give_up(sandbox).await?,
        }
        Ok(Some(Step::Again))
    }

    /// The pool that a claimed sandbox came from.
    fn pool(&self, sandbox: &Sandbox) -> Option<Arc<SandboxSet>> {
        let namespace = sandbox.metadata.namespace.clone().unwrap_or_default();
        let name = sandbox.label(label::SANDBOX_POOL)?.to_owned();
        self.sets.get(&(namespace, name))
    }

    /// Writes a step into the status. A return that does not succeed is told by an event, too.
    async fn tell(&self, sandbox: &Arc<Sandbox>, next: &Next) -> Result<(), Failure> {
        let (truth, reason, why) = match next {
            Next::Begin => (Truth::False, reason::RECYCLING_STARTED, ""),
            Next::Complete => (Truth::False, reason::RECYCLING_COMPLETED, ""),
            Next::Succeed => (Truth::True, reason::RECYCLING_SUCCEEDED, ""),
            Next::Reject(why) => (Truth::False, reason::RECYCLING_REJECTED, why.as_str()),
            Next::Fail(reason, why) => (Truth::False, *reason, why.as_str()),
            _ => return Ok(()),
        };
        let known = sandbox.condition(condition::RECYCLING);
        if known.is_some_and(|known| known.reason == reason && known.message == why) {
            return Ok(());
        }
        let mut status = sandbox.status.clone().unwrap_or_default();
        match next {
            Next::Begin => {
                status.phase = Some(SandboxPhase::Recycling);
                // The time of the condition is that of the beginning, also after an earlier return.
                conditions::remove(&mut status.conditions, condition::RECYCLING);
            }
            Next::Succeed => {
                status.phase = Some(SandboxPhase::Running);
                status.recycled_count = status.recycled_count.saturating_add(1);
            }
            _ => {}
        }
        let (generation, now) = (sandbox.metadata.generation, Timestamp::now());
        let state = State::new(condition::RECYCLING, truth, reason, why);
        conditions::set(&mut status.conditions, &state, generation, now);
        if status.phase == Some(SandboxPhase::Recycling) {
            let message = "the sandbox returns to its pool";
            let unready = State::new(condition::READY, Truth::False, reason::POD_READY, message);
            conditions::set(&mut status.conditions, &unready, generation, now);
        }
        self.write_status(sandbox, &status).await?;
        if !why.is_empty() {
            self.cluster.event(&**sandbox, true, reason, why.to_owned());
        }
        Ok(())
    }

    /// Deletes a sandbox whose return failed, or keeps it for as long as it says.
    async fn give_up(&self, sandbox: &Arc<Sandbox>) -> Result<(), Failure> {
        let kept = sandbox.annotation(annotation::CLEANUP_RETAIN_ON_FAILURE);
        let kept = kept
            .and_then(duration::parse)
            .filter(|kept| kept.is_positive());
        let until = kept.and_then(|kept| Timestamp::now().checked_add(kept).ok());
        let Some(until) = until else {
            return write::delete(&self.cluster, &self.sandboxes, &**sandbox, None, false).await;
        };
        let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
        let patch = json!({
            "metadata": {"uid": sandbox.metadata.uid}, "spec": {"shutdownTime": Time(until)},
        });
        self.patch(sandbox, &patch).await?;
        Ok(())
    }
}
