//! Claimed sandboxes whose users are done with them, and want them back in their pool.
//!
//! They are deleted, and the pool makes new ones. A sandbox that is used again would keep what depends on its UID: the
//! pass of its daemon, which its former user may know, its id, and its volumes.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use shoal_crds::kruise::names::{annotation, condition, label, reason};
use shoal_crds::kruise::{Sandbox, SandboxPhase, duration};

use super::pod::Blueprint;
use super::{SandboxController, Step, phase_of};
use crate::conditions::{self, State, Truth};
use crate::failure::Failure;
use crate::write;

/// The reason of the event about a sandbox that is replaced.
const RECYCLED: &str = "SandboxRecycled";

/// The request.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// It stays, for this reason.
    Reject(&'static str),
    /// It is deleted, and its pool makes another one.
    Replace,
    /// It has failed, and is deleted after this time.
    Keep(SignedDuration),
}

fn next(sandbox: &Sandbox, blueprint: &Blueprint) -> Next {
    let both = [annotation::CLEANUP_ENABLED, annotation::CLEANUP];
    let asked = both
        .iter()
        .all(|key| sandbox.annotation(key) == Some("true"));
    if !asked || sandbox.is_pooled() {
        return Next::Nothing;
    }
    if sandbox.label(label::SANDBOX_POOL).is_none() {
        return Next::Reject("it comes from no pool");
    }
    if !blueprint.volume_claim_templates.is_empty() {
        return Next::Reject("its volumes would go with it");
    }
    let keep = sandbox.annotation(annotation::CLEANUP_RETAIN_ON_FAILURE);
    match keep.and_then(duration::parse) {
        Some(keep) if phase_of(sandbox) == SandboxPhase::Failed => Next::Keep(keep),
        _ => Next::Replace,
    }
}

impl SandboxController {
    /// Replaces a sandbox whose user asks for it. `None` if it stays.
    pub(super) async fn recycle(
        &self,
        sandbox: &Arc<Sandbox>,
        blueprint: &Blueprint,
    ) -> Result<Option<Step>, Failure> {
        match next(sandbox, blueprint) {
            Next::Nothing => Ok(None),
            Next::Reject(why) => {
                self.reject(sandbox, why).await?;
                Ok(None)
            }
            Next::Keep(keep) => self.keep(sandbox, keep).await.map(Some),
            Next::Replace => {
                // One that has changed meanwhile is looked at again.
                write::delete(&self.cluster, &self.sandboxes, &**sandbox, None, true).await?;
                let note = "it is deleted, and its pool makes another one".to_owned();
                self.cluster.event(&**sandbox, false, RECYCLED, note);
                Ok(Some(Step::Rest(None)))
            }
        }
    }

    /// Keeps a sandbox that has failed for a while. The time begins once.
    async fn keep(&self, sandbox: &Arc<Sandbox>, keep: SignedDuration) -> Result<Step, Failure> {
        let known = sandbox.condition(condition::RECYCLING);
        if known.is_some_and(|known| known.reason == reason::RECYCLING_FAILED) {
            return Ok(Step::Rest(None));
        }
        let end = Timestamp::now().checked_add(keep).unwrap_or(Timestamp::MAX);
        let patch = json!({
            "metadata": {"resourceVersion": sandbox.metadata.resource_version},
            "spec": {"shutdownTime": Time(end)},
        });
        self.patch(sandbox, &patch).await?;
        let why = "it has failed, and is kept for a while";
        self.tell(sandbox, reason::RECYCLING_FAILED, why).await?;
        Ok(Step::Again)
    }

    async fn reject(&self, sandbox: &Arc<Sandbox>, why: &str) -> Result<(), Failure> {
        let known = sandbox.condition(condition::RECYCLING);
        if known.is_some_and(|known| known.message == why) {
            return Ok(());
        }
        self.tell(sandbox, reason::RECYCLING_REJECTED, why).await
    }

    async fn tell(
        &self,
        sandbox: &Arc<Sandbox>,
        reason: &'static str,
        why: &str,
    ) -> Result<(), Failure> {
        let mut status = sandbox.status.clone().unwrap_or_default();
        let state = State::new(condition::RECYCLING, Truth::False, reason, why);
        let generation = sandbox.metadata.generation;
        conditions::set(&mut status.conditions, &state, generation, Timestamp::now());
        self.write_status(sandbox, &status).await?;
        let note = why.to_owned();
        self.cluster.event(&**sandbox, true, reason, note);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(change: impl FnOnce(&mut Value)) -> Next {
        let mut object = json!({
            "metadata": {
                "name": "s",
                "labels": {label::SANDBOX_POOL: "p"},
                "annotations": {annotation::CLEANUP_ENABLED: "true", annotation::CLEANUP: "true"},
            },
            "spec": {"template": {"spec": {"containers": []}}},
        });
        change(&mut object);
        let sandbox: Sandbox = serde_json::from_value(object).unwrap();
        next(&sandbox, &Blueprint::inline(&sandbox).unwrap())
    }

    #[test]
    fn both_annotations_ask_for_another_sandbox() {
        assert_eq!(asked(|_| {}), Next::Replace);
        for key in [annotation::CLEANUP, annotation::CLEANUP_ENABLED] {
            let next = asked(|object| object["metadata"]["annotations"][key] = "false".into());
            assert_eq!(next, Next::Nothing);
        }
        let owner = json!([{
            "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "name": "p", "uid": "p", "controller": true,
        }]);
        let next = asked(|object| object["metadata"]["ownerReferences"] = owner);
        assert_eq!(next, Next::Nothing, "nobody has claimed it");
    }

    #[test]
    fn one_that_has_failed_is_kept_if_its_pool_says_so() {
        let failed = |keep: Option<&str>, phase: &str| {
            asked(|object| {
                object["status"] = json!({"phase": phase});
                if let Some(keep) = keep {
                    let key = annotation::CLEANUP_RETAIN_ON_FAILURE;
                    object["metadata"]["annotations"][key] = keep.into();
                }
            })
        };
        let keep = Next::Keep(SignedDuration::from_mins(5));
        assert_eq!(failed(Some("5m"), "Failed"), keep);
        assert_eq!(failed(Some("5m"), "Running"), Next::Replace);
        assert_eq!(failed(Some("soon"), "Failed"), Next::Replace);
        assert_eq!(failed(None, "Failed"), Next::Replace);
    }

    #[test]
    fn volumes_and_sandboxes_without_a_pool_stay() {
        let next = asked(|object| {
            object["spec"]["volumeClaimTemplates"] =
                json!([{"metadata": {"name": "v"}, "spec": {}}]);
        });
        assert!(matches!(next, Next::Reject(why) if why.contains("volumes")));
        let next = asked(|object| object["metadata"]["labels"] = json!({}));
        assert!(matches!(next, Next::Reject(why) if why.contains("no pool")));
    }
}
