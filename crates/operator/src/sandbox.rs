//! The controller of `Sandbox`: pod, volume claims, service, shutdown time and status.

mod children;
mod expiry;
mod model;
mod pod;
mod save;
mod service;
mod status;
mod suspend;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::controller::Action;
use serde_json::json;
use shoal_crds::kruise::names::reason;
use shoal_crds::parts::ShutdownPolicy;
use shoal_crds::v1beta1::{Sandbox, SandboxStatus};

use self::expiry::Expiry;
use self::model::{PodState, Wanted};
use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::conditions;
use crate::failure::{Failure, is_missing};
use crate::held::Held;
use crate::owner::{self, Owner};
use crate::patch;
use crate::saves::SharedSaves;
use crate::slim::{PersistentVolumeClaim, Pod, Service};

/// The next pass after a sandbox has been marked as expired.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Reconciles sandboxes.
pub(crate) struct SandboxController {
    pub(crate) cluster: Cluster,
    pub(crate) sandboxes: Arc<Cache<Sandbox>>,
    pub(crate) pods: Arc<Cache<Pod>>,
    pub(crate) services: Arc<Cache<Service>>,
    pub(crate) volume_claims: Arc<Cache<PersistentVolumeClaim>>,
    pub(crate) cluster_domain: String,
    pub(crate) held: Held,
    pub(crate) saves: SharedSaves,
}

impl SandboxController {
    /// Brings a sandbox closer to its specification.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        sandbox: Arc<Sandbox>,
    ) -> Result<Action, Failure> {
        let key = crate::cache::key(&*sandbox);
        let sandbox = self.sandboxes.get(&key).unwrap_or(sandbox);
        let Some(wanted) = Wanted::of(&sandbox) else {
            return Ok(Action::await_change());
        };
        if sandbox.metadata.deletion_timestamp.is_some() {
            self.held.clear(wanted.uid);
            return Ok(Action::await_change());
        }
        if expiry::of(&sandbox.spec, Timestamp::now()) == Expiry::Expired {
            return self.expire(&wanted).await;
        }
        let (seen, failure) = self.children(&wanted).await;
        let now = Timestamp::now();
        // The children may have taken long.
        let left = match expiry::of(&sandbox.spec, now) {
            Expiry::Expired => return self.expire(&wanted).await,
            Expiry::After(left) => Some(left),
            Expiry::Never => None,
        };
        let status = status::of(&wanted, &seen, now, &self.cluster_domain);
        if let PodState::Several(_) = seen.pod {
            self.warn(&wanted, &status, "Ready", status::SEVERAL_PODS);
        }
        self.warn(&wanted, &status, "Suspended", reason::CHECKPOINT_FAILED);
        let held = self.write_status(&wanted, status, failure.is_none()).await;
        let saved = seen.saving.and_then(|saving| saving.wait);
        match (failure, held) {
            (Some(failure), Ok(_)) => Err(failure),
            (failure, Err(of_status)) => Err(Failure::of(
                failure.into_iter().chain([of_status]).collect(),
            )
            .unwrap_or_else(|| Failure::Refused("the status was not written".to_owned()))),
            (None, Ok(held)) => Ok(match [left, held, saved].into_iter().flatten().min() {
                Some(wait) => Action::requeue(wait),
                None => Action::await_change(),
            }),
        }
    }

    /// Marks the sandbox as expired; on the next pass, deletes its pod and service, or all of it.
    async fn expire(&self, wanted: &Wanted<'_>) -> Result<Action, Failure> {
        let now = Timestamp::now();
        if !status::is_marked_expired(wanted) {
            self.write_status(wanted, status::expired(wanted, false, now), false)
                .await?;
            return Ok(Action::requeue(AT_ONCE));
        }
        for pod in self.pods.owned_by(wanted.uid) {
            if pod.metadata.deletion_timestamp.is_none() {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let deleted = self.cluster.delete::<Pod>(
                    wanted.namespace,
                    name,
                    pod.metadata.uid.as_deref(),
                    false,
                );
                match deleted.await {
                    Ok(Some(terminating)) => drop(self.pods.learn(terminating)),
                    Ok(None) => {}
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let key = (wanted.namespace.to_owned(), wanted.name.to_owned());
        if let Some(service) = self.services.get(&key)
            && owner::owner(&service.metadata, wanted.uid) == Owner::Own
        {
            self.delete_service(wanted, &service).await?;
        }
        if wanted.sandbox.spec.shutdown_policy == Some(ShutdownPolicy::Delete) {
            let deleted = self.cluster.delete::<Sandbox>(
                wanted.namespace,
                wanted.name,
                Some(wanted.uid),
                false,
            );
            return match deleted.await {
                Err(error) if !is_missing(&error) => Err(error.into()),
                _ => Ok(Action::await_change()),
            };
        }
        self.write_status(wanted, status::expired(wanted, true, now), false)
            .await?;
        Ok(Action::await_change())
    }

    /// Emits an event when a condition has a reason and had another one before.
    fn warn(&self, wanted: &Wanted<'_>, status: &SandboxStatus, kind: &str, reason: &str) {
        let told = |status: &SandboxStatus| {
            conditions::find(&status.conditions, kind)
                .filter(|state| state.reason == reason)
                .map(|state| state.message.clone())
        };
        let Some(note) = told(status) else {
            return;
        };
        if wanted.sandbox.status.as_ref().and_then(told).is_none() {
            self.cluster.event(wanted.sandbox, true, reason, note);
        }
    }

    /// Writes the status if it differs. With `may_hold`, a status that only reports progress waits for a
    /// moment; returns how long.
    async fn write_status(
        &self,
        wanted: &Wanted<'_>,
        status: SandboxStatus,
        may_hold: bool,
    ) -> Result<Option<Duration>, Failure> {
        let before = wanted.sandbox.status.clone().unwrap_or_default();
        let Some(change) = patch::between(
            &serde_json::to_value(&before)?,
            &serde_json::to_value(&status)?,
        ) else {
            self.held.clear(wanted.uid);
            return Ok(None);
        };
        if may_hold
            && is_progress(&before, &status)
            && let Some(wait) = self.held.wait(wanted.uid)
        {
            return Ok(Some(wait));
        }
        self.held.clear(wanted.uid);
        match self
            .cluster
            .patch_status(wanted.namespace, wanted.name, &json!({"status": change}))
            .await
        {
            Ok(patched) => drop(self.sandboxes.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        crate::measures::sandbox_status(wanted.sandbox, &before, &status);
        Ok(None)
    }
}

/// Whether a status only reports progress: the sandbox is not ready, as before.
fn is_progress(before: &SandboxStatus, after: &SandboxStatus) -> bool {
    let state = |status: &SandboxStatus, kind: &str| {
        conditions::find(&status.conditions, kind)
            .map(|state| (state.status.clone(), state.reason.clone()))
    };
    let starting = |ready: Option<(String, String)>| {
        ready.is_none_or(|(status, reason)| status == "False" && reason == "DependenciesNotReady")
    };
    let same = |kind: &str, first: &str| {
        let (before, after) = (state(before, kind), state(after, kind));
        before == after || (before.is_none() && after.is_none_or(|(_, reason)| reason == first))
    };
    starting(state(before, "Ready"))
        && starting(state(after, "Ready"))
        && same("Finished", "")
        && same("Suspended", "NotSuspended")
}

#[cfg(test)]
mod tests;
