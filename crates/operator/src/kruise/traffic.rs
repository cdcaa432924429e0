//! The controller of `TrafficPolicy`: keeps a NetworkPolicy that says the same, as far as that can.

mod render;

use std::sync::Arc;

use jiff::Timestamp;
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use shoal_crds::kruise::names::{GROUP, VERSION, condition, label};
use shoal_crds::kruise::{TrafficPolicy, TrafficPolicyStatus};

use self::render::Rendered;
use super::CREATOR;
use crate::cache::{Cache, key};
use crate::cluster::Cluster;
use crate::conditions::{self, State, Truth};
use crate::failure::{Failure, is_conflict};
use crate::owner::{self, Owner};
use crate::patch;
use crate::slim::NetworkPolicy;
use crate::write;

/// Reasons of the condition `Accepted`.
const RENDERED: &str = "Rendered";
const NOT_EXPRESSIBLE: &str = "NotExpressible";

/// Reconciles policies.
pub(crate) struct TrafficPolicyController {
    pub(crate) cluster: Cluster,
    pub(crate) traffic: Arc<Cache<TrafficPolicy>>,
    /// The network policies with the operator's label.
    pub(crate) policies: Arc<Cache<NetworkPolicy>>,
}

/// The name of the network policy.
fn name_of(policy: &str) -> String {
    format!("{policy}-traffic")
}

impl TrafficPolicyController {
    /// Creates or corrects the network policy, and reports the rules that it cannot express.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        policy: Arc<TrafficPolicy>,
    ) -> Result<Action, Failure> {
        let policy = self.traffic.get(&key(&*policy)).unwrap_or(policy);
        if policy.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let rendered = render::render(&policy.spec);
        self.keep(&policy, &rendered.spec).await?;
        self.tell(&policy, &rendered).await?;
        Ok(Action::await_change())
    }

    async fn keep(&self, policy: &TrafficPolicy, spec: &Value) -> Result<(), Failure> {
        let (namespace, name) = key(policy);
        let name = name_of(&name);
        let uid = policy.metadata.uid.as_deref().unwrap_or_default();
        let place = (namespace, name);
        if let Some(present) = self.policies.get(&place) {
            if owner::owner(&present.metadata, uid) != Owner::Own {
                let name = &place.1;
                return Err(Failure::Refused(format!(
                    "the NetworkPolicy {name} is another object's"
                )));
            }
            if let Some(change) = patch::between(&present.spec, spec) {
                let patch = json!({"metadata": {"uid": present.metadata.uid}, "spec": change});
                let patched = self.cluster.patch(&place.0, &place.1, &patch).await?;
                self.policies.learn(patched);
            }
            return Ok(());
        }
        let manifest = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {
                "name": place.1,
                "namespace": place.0,
                "labels": {label::CREATED_BY: CREATOR},
                "ownerReferences": [{
                    "apiVersion": format!("{GROUP}/{VERSION}"),
                    "kind": "TrafficPolicy",
                    "name": policy.metadata.name,
                    "uid": uid,
                    "controller": true,
                    "blockOwnerDeletion": false,
                }],
            },
            "spec": spec,
        });
        match self.cluster.create(&place.0, &manifest).await {
            Ok(created) => drop(self.policies.learn(created)),
            Err(error) if is_conflict(&error) => {
                let name = &place.1;
                return Err(Failure::Refused(format!(
                    "the NetworkPolicy {name} exists, and is not that of this TrafficPolicy"
                )));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Lists in the status the rules that the network policy cannot express.
    async fn tell(&self, policy: &TrafficPolicy, rendered: &Rendered) -> Result<(), Failure> {
        let before = policy.status.as_ref();
        let mut conditions = before
            .map(|before| before.conditions.clone())
            .unwrap_or_default();
        let complete = rendered.missing.is_empty();
        let (truth, reason) = match complete {
            true => (Truth::True, RENDERED),
            false => (Truth::False, NOT_EXPRESSIBLE),
        };
        let message = rendered.missing.join("; ");
        let state = State::new(condition::ACCEPTED, truth, reason, message.clone());
        let (generation, now) = (policy.metadata.generation, Timestamp::now());
        conditions::set(&mut conditions, &state, generation, now);
        let status = TrafficPolicyStatus {
            observed_generation: generation.unwrap_or_default(),
            conditions,
        };
        let written = write::status(&self.cluster, &self.traffic, policy, before, &status).await?;
        if written.is_some() && !complete {
            self.cluster.event(policy, true, NOT_EXPRESSIBLE, message);
        }
        Ok(())
    }
}
