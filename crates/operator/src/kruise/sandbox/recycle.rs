//! Claimed sandboxes whose users are done with them, and want them back in their pool.
//!
//! They are deleted, and the pool makes new ones. A sandbox that is used again would keep what depends on its UID: the
//! pass of its daemon, which its former user may know, its id, and its volumes.

use std::sync::Arc;

use jiff::Timestamp;
use shoal_crds::kruise::Sandbox;
use shoal_crds::kruise::names::{annotation, condition, label, reason};

use super::pod::Blueprint;
use super::{SandboxController, Step};
use crate::conditions::{self, State, Truth};
use crate::failure::Failure;
use crate::kruise::write;

/// The reason of the event about a sandbox that is replaced.
const RECYCLED: &str = "SandboxRecycled";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// It stays, for this reason.
    Reject(&'static str),
    /// It is deleted, and its pool makes another one.
    Replace,
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
    Next::Replace
}

impl SandboxController {
    /// Replaces a sandbox whose user asks for it. `None` when it goes on.
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
            Next::Replace => {
                // One that has changed meanwhile is looked at again.
                write::delete(&self.cluster, &self.sandboxes, &**sandbox, None, true).await?;
                let note = "it is deleted, and its pool makes another one".to_owned();
                self.cluster.event(&**sandbox, false, RECYCLED, note);
                Ok(Some(Step::Rest(None)))
            }
        }
    }

    async fn reject(&self, sandbox: &Arc<Sandbox>, why: &str) -> Result<(), Failure> {
        let known = sandbox.condition(condition::RECYCLING);
        if known.is_some_and(|known| known.message == why) {
            return Ok(());
        }
        let mut status = sandbox.status.clone().unwrap_or_default();
        let state = State::new(
            condition::RECYCLING,
            Truth::False,
            reason::RECYCLING_REJECTED,
            why,
        );
        let generation = sandbox.metadata.generation;
        conditions::set(&mut status.conditions, &state, generation, Timestamp::now());
        self.write_status(sandbox, &status).await?;
        let note = why.to_owned();
        self.cluster
            .event(&**sandbox, true, reason::RECYCLING_REJECTED, note);
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
