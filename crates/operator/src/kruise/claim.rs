//! The controller of `SandboxClaim`: takes so many sandboxes out of a pool, or creates them, within a time.
//!
//! A claimed sandbox names the claim's UID as its owner, so nothing is claimed twice when the operator is killed
//! between a claim and its status. As with a Job, a sandbox that is deleted after it was usable is not replaced.

mod change;
mod plan;
mod take;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::controller::Action;
use parking_lot::Mutex;
use serde_json::json;
use shoal_crds::kruise::names::{annotation, condition, label, reason};
use shoal_crds::kruise::{
    ClaimPhase, Picks, Sandbox, SandboxClaim, SandboxClaimStatus, SandboxSet, SandboxTemplate,
};

use self::plan::{End, Plan};
use super::batches::Written;
use crate::cache::{Cache, key};
use crate::cluster::Cluster;
use crate::conditions::{self, State, Truth};
use crate::failure::{Failure, is_conflict, is_missing};
use crate::write;

/// When a claim looks again for sandboxes of an empty pool.
const AGAIN: Duration = Duration::from_secs(2);

/// The group of the sandboxes of a claim.
fn group(uid: &str) -> String {
    format!("claim/{uid}")
}

/// The group of a sandbox by its claim, if it has one.
pub(crate) fn claim_group(sandbox: &Sandbox) -> Option<String> {
    sandbox.label(label::CLAIM_NAME)?;
    sandbox.annotation(annotation::OWNER).map(group)
}

/// Reconciles claims.
pub(crate) struct SandboxClaimController {
    pub(crate) cluster: Cluster,
    pub(crate) claims: Arc<Cache<SandboxClaim>>,
    pub(crate) sets: Arc<Cache<SandboxSet>>,
    pub(crate) templates: Arc<Cache<SandboxTemplate>>,
    pub(crate) sandboxes: Arc<Cache<Sandbox>>,
    /// Whether resources of running pods may change.
    pub(crate) resizes: bool,
    /// Whether all pods get the daemon.
    pub(crate) injected: bool,
    pub(crate) picks: Picks,
    /// The claims with a write whose answer was lost, by UID. Its sandbox may not be in the cache yet.
    pub(crate) uncertain: Mutex<HashSet<String>>,
    /// When a sandbox of a claim failed, by the claim's UID.
    pub(crate) slow: Mutex<HashMap<String, Instant>>,
}

impl SandboxClaimController {
    /// Brings a claim closer to its end, or deletes it some time after that.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        claim: Arc<SandboxClaim>,
    ) -> Result<Action, Failure> {
        let claim = self.claims.get(&key(&*claim)).unwrap_or(claim);
        let Some(uid) = claim.metadata.uid.as_deref() else {
            return Ok(Action::await_change());
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let status = claim.status.as_ref();
        if status.is_some_and(|status| status.phase == Some(ClaimPhase::Completed)) {
            return self.expire(&claim).await;
        }
        self.learn(&claim, uid).await?;
        let now = Timestamp::now();
        let begun = status.and_then(|status| status.claim_start_time.as_ref());
        let end = plan::end(&claim, begun.map_or(now, |begun| begun.0));
        let started = self.startable(&claim, now).await?;
        let mut plan = Plan::of(&claim, self.sandboxes.group(&group(uid)), now);
        if end <= now || started.is_err() {
            // The claim does not wait for these any more.
            let late = std::mem::take(&mut plan.pending);
            plan.failed.extend(late);
        }
        let mut failures = self.clear(&claim, &plan).await;
        let (set, refused) = match started {
            Ok(set) => (Some(set), None),
            Err(end) => (None, Some(end)),
        };
        let over = plan.over(&claim, refused, end <= now);
        let is_over = over.is_some();
        if let Some(end) = over.filter(|_| failures.is_empty()) {
            return self.complete(&claim, &plan, end).await;
        }
        let set = set.filter(|_| !is_over);
        failures.extend(self.count(&plan).await);
        let mut written = Written::default();
        let slow = self.is_slow(uid, !plan.failed.is_empty());
        if let Some(set) = set.filter(|_| plan.missing > 0 && !slow) {
            written = self.claim(&claim, &set, plan.missing).await;
            failures.extend(written.failure.take());
        }
        let failure = Failure::of(failures);
        let told = failure.as_ref().map(ToString::to_string);
        self.progress(&claim, &plan, now, told).await?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if written.exhausted {
            let note = format!("no sandbox of {} waits", claim.spec.template_name);
            self.cluster
                .event(&*claim, true, "NoAvailableSandboxes", note);
        }
        let next = plan.next.map_or(end, |next| next.min(end));
        let wait = Duration::try_from(next.duration_since(Timestamp::now())).unwrap_or_default();
        // The claimed sandboxes wake the claim when they are ready, or have taken too long.
        let again = written.count < plan.missing || written.exhausted;
        let first = if again { wait.min(AGAIN) } else { wait };
        Ok(Action::requeue(first.max(Duration::from_millis(10))))
    }

    /// Whether a sandbox of the claim has failed a moment ago. A template whose sandboxes end at once would make one
    /// after another.
    fn is_slow(&self, uid: &str, failed: bool) -> bool {
        let mut slow = self.slow.lock();
        slow.retain(|_, since| since.elapsed() < AGAIN);
        if failed {
            slow.insert(uid.to_owned(), Instant::now());
        }
        slow.contains_key(uid)
    }

    /// Marks the sandboxes that count from now on, so that no later pass takes one for a failure.
    async fn count(&self, plan: &Plan) -> Vec<Failure> {
        let mut failures = Vec::new();
        for sandbox in &plan.new {
            let (namespace, name) = key(&**sandbox);
            let annotations = json!({annotation::DELIVERED: "true"});
            let patch =
                json!({"metadata": {"uid": sandbox.metadata.uid, "annotations": annotations}});
            match self.cluster.patch(&namespace, &name, &patch).await {
                Ok(patched) => drop(self.sandboxes.learn(patched)),
                Err(error) if is_missing(&error) || is_conflict(&error) => {}
                Err(error) => failures.push(error.into()),
            }
        }
        failures
    }

    /// The set of a claim, or why the claim cannot be carried out.
    async fn startable(
        &self,
        claim: &SandboxClaim,
        now: Timestamp,
    ) -> Result<Result<Arc<SandboxSet>, End>, Failure> {
        let (namespace, _) = key(claim);
        let name = &claim.spec.template_name;
        let known = self.sets.get(&(namespace.clone(), name.clone()));
        let set = match known {
            Some(known) => Some(known),
            // It may have been created together with the claim.
            None => self.cluster.get(&namespace, name).await?.map(Arc::new),
        };
        let Some(set) = set.filter(|set| set.metadata.deletion_timestamp.is_none()) else {
            return Ok(Err(End {
                reason: reason::SANDBOX_SET_NOT_FOUND,
                message: format!("there is no SandboxSet {name}"),
            }));
        };
        if let Some(message) = change::refusal(claim, &set, now) {
            let reason = reason::INVALID_CLAIM;
            return Ok(Err(End { reason, message }));
        }
        if change::resizes(claim) && !self.resizes {
            return Ok(Err(End {
                reason: reason::FEATURE_GATE_DISABLED,
                message: "the feature gate SandboxInPlaceResourceResize is turned off".to_owned(),
            }));
        }
        Ok(Ok(set))
    }

    /// Lists the sandboxes of a claim with a write whose answer was lost: it may have been carried out.
    async fn learn(&self, claim: &SandboxClaim, uid: &str) -> Result<(), Failure> {
        if !self.uncertain.lock().contains(uid) {
            return Ok(());
        }
        let (namespace, name) = key(claim);
        let selector = format!("{}={name}", label::CLAIM_NAME);
        for sandbox in self.cluster.list(&namespace, &selector).await? {
            self.sandboxes.learn(sandbox);
        }
        self.uncertain.lock().remove(uid);
        Ok(())
    }

    /// Deletes surplus sandboxes. Deletes or keeps failed ones, as the claim says.
    async fn clear(&self, claim: &SandboxClaim, plan: &Plan) -> Vec<Failure> {
        let mut failures = Vec::new();
        for sandbox in &plan.surplus {
            let deleted = write::delete(&self.cluster, &self.sandboxes, sandbox, None, false).await;
            failures.extend(deleted.err());
        }
        for (number, sandbox) in plan.failed.iter().enumerate() {
            let reserved = plan.reserved + number;
            if let Err(failure) = self.clear_one(claim, sandbox, reserved).await {
                failures.push(failure);
                continue;
            }
            let name = sandbox.metadata.name.as_deref().unwrap_or_default();
            let ready = sandbox.condition(condition::READY);
            let why = ready.map_or("it has no pod yet", |ready| ready.message.as_str());
            let note = format!("sandbox {name} did not become ready: {why}");
            self.cluster.event(claim, true, "SandboxNotReady", note);
        }
        failures
    }

    /// Keeps at most as many failures as the claim asks for sandboxes.
    async fn clear_one(
        &self,
        claim: &SandboxClaim,
        sandbox: &Sandbox,
        reserved: usize,
    ) -> Result<(), Failure> {
        if !claim.spec.reserve_failed_sandbox || reserved >= plan::wanted(claim) {
            return write::delete(&self.cluster, &self.sandboxes, sandbox, None, false).await;
        }
        let (namespace, name) = key(sandbox);
        let patch = json!({
            "metadata": {"uid": sandbox.metadata.uid, "labels": {label::RESERVED_FAILED_SANDBOX: "true"}},
            "spec": {"shutdownTime": null},
        });
        match self.cluster.patch(&namespace, &name, &patch).await {
            Ok(patched) => drop(self.sandboxes.learn(patched)),
            Err(error) if is_missing(&error) || is_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Writes how far the claim is.
    async fn progress(
        &self,
        claim: &SandboxClaim,
        plan: &Plan,
        begun: Timestamp,
        told: Option<String>,
    ) -> Result<(), Failure> {
        let before = claim.status.as_ref();
        let mut status = before.cloned().unwrap_or_default();
        begin(&mut status, claim, plan, begun);
        status.phase = Some(ClaimPhase::Claiming);
        status.message = told.unwrap_or_default();
        write::status(&self.cluster, &self.claims, claim, before, &status).await?;
        Ok(())
    }

    async fn complete(
        &self,
        claim: &SandboxClaim,
        plan: &Plan,
        end: End,
    ) -> Result<Action, Failure> {
        let before = claim.status.as_ref();
        let mut status = before.cloned().unwrap_or_default();
        let (now, generation) = (Timestamp::now(), claim.metadata.generation);
        begin(&mut status, claim, plan, now);
        status.phase = Some(ClaimPhase::Completed);
        status.completion_time = Some(Time(now));
        status.message.clone_from(&end.message);
        let completed = State::new(condition::COMPLETED, Truth::True, end.reason, &end.message);
        conditions::set(&mut status.conditions, &completed, generation, now);
        if end.reason == reason::TIMEOUT_REACHED {
            let why = reason::CLAIM_TIMEOUT_REACHED;
            let timed_out = State::new(condition::TIMED_OUT, Truth::True, why, &end.message);
            conditions::set(&mut status.conditions, &timed_out, generation, now);
        }
        if let Some(uid) = &claim.metadata.uid {
            self.uncertain.lock().remove(uid);
        }
        let written = write::status(&self.cluster, &self.claims, claim, before, &status).await?;
        let good = end.reason == reason::ALL_REPLICAS_CLAIMED;
        let event = if good { "ClaimCompleted" } else { end.reason };
        self.cluster.event(claim, !good, event, end.message);
        match written {
            Some(written) => Ok(until_deletion(&written)),
            None => Ok(Action::await_change()),
        }
    }

    /// Deletes a completed claim after its TTL. Its sandboxes stay.
    async fn expire(&self, claim: &SandboxClaim) -> Result<Action, Failure> {
        if plan::deletion(claim).is_none_or(|at| at > Timestamp::now()) {
            return Ok(until_deletion(claim));
        }
        let note = "its time after completion is over".to_owned();
        self.cluster
            .event(claim, false, "SandboxClaimTTLDelete", note);
        write::delete(&self.cluster, &self.claims, claim, None, false).await?;
        Ok(Action::await_change())
    }
}

fn until_deletion(claim: &SandboxClaim) -> Action {
    let Some(at) = plan::deletion(claim) else {
        return Action::await_change();
    };
    let wait = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
    Action::requeue(wait)
}

/// The fields of every status of a claim.
fn begin(status: &mut SandboxClaimStatus, claim: &SandboxClaim, plan: &Plan, begun: Timestamp) {
    status.observed_generation = claim.metadata.generation.unwrap_or_default();
    status.claim_start_time.get_or_insert(Time(begun));
    let delivered = i32::try_from(plan.delivered).unwrap_or(i32::MAX);
    status.claimed_replicas = status.claimed_replicas.max(delivered);
}
