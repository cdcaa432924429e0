//! The controller of `PoolAutoscaler`: changes the size of a SandboxSet by the clock, and by how many of its
//! sandboxes are free. Nothing else here writes that size.

mod capacity;
mod plan;
mod schedule;
mod status;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::runtime::controller::Action;
use parking_lot::Mutex;
use serde_json::json;
use shoal_crds::kruise::names::{condition, reason};
use shoal_crds::kruise::{
    CurrentCapacity, PoolAutoscaler, PoolAutoscalerStatus, Sandbox, SandboxPhase, SandboxSet,
};
use tokio::time::Instant;

use self::capacity::{Samples, Target};
use self::plan::{Blocked, Decision, Observed};
use self::status::Outcome;
use super::set;
use crate::cache::{Cache, key};
use crate::cluster::Cluster;
use crate::conditions::Truth;
use crate::failure::{Failure, is_missing};

/// How often an autoscaler whose pool has another one looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The share of a pool that may fail to start before it no longer grows, if the pool says nothing.
const STARTUP_BUDGET: &str = "25%";

/// The times of autoscalers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AutoscalerTimes {
    /// Between two samples of a pool.
    pub(crate) interval: Duration,
    /// How long a sample counts.
    pub(crate) window: Duration,
    /// How long a sandbox may take to start.
    pub(crate) pending: Duration,
}

/// The in-memory state of an autoscaler.
struct Known {
    samples: Samples,
    sampled: Option<Instant>,
    last_shrink: Option<Timestamp>,
}

/// Reconciles autoscalers.
pub(crate) struct AutoscalerController {
    cluster: Cluster,
    scalers: Arc<Cache<PoolAutoscaler>>,
    sets: Arc<Cache<SandboxSet>>,
    sandboxes: Arc<Cache<Sandbox>>,
    times: AutoscalerTimes,
    /// By UID.
    known: Mutex<HashMap<String, Known>>,
}

/// The group of the autoscalers of a pool.
pub(crate) fn autoscaler_group(scaler: &PoolAutoscaler) -> Option<String> {
    let namespace = scaler.metadata.namespace.as_deref()?;
    Some(format!("{namespace}/{}", scaler.spec.scale_target_ref.name))
}

impl AutoscalerController {
    pub(crate) fn new(
        cluster: Cluster,
        scalers: Arc<Cache<PoolAutoscaler>>,
        sets: Arc<Cache<SandboxSet>>,
        sandboxes: Arc<Cache<Sandbox>>,
        times: AutoscalerTimes,
    ) -> Self {
        Self {
            cluster,
            scalers,
            sets,
            sandboxes,
            times,
            known: Mutex::default(),
        }
    }

    /// Looks at the pool, and changes its size if it is time.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        scaler: Arc<PoolAutoscaler>,
    ) -> Result<Action, Failure> {
        let scaler = self.scalers.get(&key(&*scaler)).unwrap_or(scaler);
        let uid = scaler.metadata.uid.clone().unwrap_or_default();
        if scaler.metadata.deletion_timestamp.is_some() {
            self.known.lock().remove(&uid);
            return Ok(Action::await_change());
        }
        self.forget_deleted();
        let mut status = scaler.status.clone().unwrap_or_default();
        status.observed_generation = scaler.metadata.generation.unwrap_or_default();
        status.suspended = scaler.spec.suspend;
        let outcome = self.pass(&scaler, &mut status).await;
        let again = outcome.again;
        self.tell(&scaler, status, outcome).await?;
        Ok(Action::requeue(again))
    }

    /// Deleted autoscalers have no pass of their own.
    fn forget_deleted(&self) {
        let mut known = self.known.lock();
        let all = self.scalers.all();
        if known.len() > all.len() {
            let exists = |uid: &String| {
                let mut all = all.iter();
                all.any(|scaler| scaler.metadata.uid.as_ref() == Some(uid))
            };
            known.retain(|uid, _| exists(uid));
        }
    }

    async fn pass(&self, scaler: &PoolAutoscaler, status: &mut PoolAutoscalerStatus) -> Outcome {
        let (now, interval) = (Timestamp::now(), self.times.interval);
        let spec = &scaler.spec;
        let read = schedule::read(&spec.cron_policies, now)
            .and_then(|schedules| Ok((schedules, read_target(scaler)?)));
        let (schedules, target) = match read {
            Ok(read) => read,
            Err(why) => return Outcome::inactive(reason::INVALID_POLICY, why, LOOK_AGAIN),
        };
        if let Some(other) = self.holder(scaler) {
            let why = format!(
                "PoolAutoscaler {other:?} is older and has SandboxSet {:?}: delete one of them",
                spec.scale_target_ref.name
            );
            return Outcome::inactive(reason::CONFLICTING_AUTOSCALER, why, LOOK_AGAIN);
        }
        let due = schedule::due(&schedules, &status.applied_cron_policies, now);
        if spec.suspend {
            // Missed schedules are not made up for.
            self.record(scaler, status, &due);
            return Outcome::inactive(reason::SUSPENDED, "spec.suspend is set", interval);
        }
        let Some(set) = self.target(scaler) else {
            let why = format!("there is no SandboxSet {:?}", spec.scale_target_ref.name);
            return Outcome {
                able: (Truth::False, reason::FAILED_GET_TARGET, why.clone()),
                ..Outcome::inactive(reason::FAILED_GET_TARGET, why, interval)
            };
        };
        let (means, last_shrink) = self.sample(scaler, &set, status, now);
        let seen = Observed {
            replicas: set.spec.replicas,
            means: target.as_ref().zip(means),
            due: due.last(),
            asked: schedule::asked(spec, &status.applied_cron_policies),
            last_change: status.last_scale_time.as_ref().map(|time| time.0),
            last_shrink,
            blocked: self.blocked(&set, now),
            pending: self.times.pending,
            now,
        };
        let decision = plan::decide(spec, &seen);
        status.desired_replicas = decision.replicas;
        let able = self.scale(scaler, &set, &decision, status, now).await;
        if able.1 != reason::FAILED_SCALE {
            self.record(scaler, status, &due);
        }
        let active = if target.is_some() && means.is_none() {
            let why = "it has not watched the pool for long enough to decide about its capacity";
            let reason = reason::INSUFFICIENT_OBSERVATION_WINDOW;
            (Truth::False, reason, why.to_owned())
        } else {
            (Truth::True, reason::VALID_POLICY, String::new())
        };
        Outcome {
            active,
            able,
            limited: Some(decision.limited),
            again: interval,
        }
    }

    fn record(
        &self,
        scaler: &PoolAutoscaler,
        status: &mut PoolAutoscalerStatus,
        due: &[schedule::Due],
    ) {
        let policies = &scaler.spec.cron_policies;
        let applied = &status.applied_cron_policies;
        status.applied_cron_policies = schedule::record(policies, applied, due);
    }

    /// The autoscaler that has the pool, if it is another one: the oldest.
    fn holder(&self, scaler: &PoolAutoscaler) -> Option<String> {
        let age = |scaler: &PoolAutoscaler| {
            let created = scaler.metadata.creation_timestamp.as_ref();
            (
                created.map(|created| created.0),
                scaler.metadata.name.clone(),
            )
        };
        let rivals = self.scalers.group(&autoscaler_group(scaler)?);
        let older = rivals.iter().filter(|rival| {
            rival.metadata.deletion_timestamp.is_none() && age(rival) < age(scaler)
        });
        older.min_by_key(|rival| age(rival))?.metadata.name.clone()
    }

    fn target(&self, scaler: &PoolAutoscaler) -> Option<Arc<SandboxSet>> {
        let namespace = scaler.metadata.namespace.clone().unwrap_or_default();
        let name = scaler.spec.scale_target_ref.name.clone();
        let set = self.sets.get(&(namespace, name))?;
        set.metadata.deletion_timestamp.is_none().then_some(set)
    }

    /// Notes what the pool has. The means of the last samples, and when the pool last shrank.
    fn sample(
        &self,
        scaler: &PoolAutoscaler,
        set: &SandboxSet,
        status: &mut PoolAutoscalerStatus,
        now: Timestamp,
    ) -> (Option<capacity::Means>, Option<Timestamp>) {
        let of_set = set.status.clone().unwrap_or_default();
        status.current_replicas = of_set.replicas;
        status.current_capacity = Some(CurrentCapacity {
            available: of_set.available_replicas,
        });
        let uid = scaler.metadata.uid.clone().unwrap_or_default();
        let mut known = self.known.lock();
        let known = known.entry(uid).or_insert_with(|| Known {
            samples: Samples::default(),
            sampled: None,
            // Whether that change made the pool smaller is not known.
            last_shrink: status.last_scale_time.as_ref().map(|time| time.0),
        });
        let (at, window) = (Instant::now(), self.times.window);
        // A pass after a change of the status is no time for another sample.
        let is_time = |last: Instant| at.duration_since(last) >= self.times.interval / 2;
        if known.sampled.is_none_or(is_time) {
            known.sampled = Some(at);
            let (available, replicas) = (of_set.available_replicas, of_set.replicas);
            known.samples.add(at, available, replicas, window);
        }
        let last_shrink = known.last_shrink.filter(|last| *last <= now);
        (known.samples.means(window), last_shrink)
    }

    /// The sandboxes of the pool that do not start.
    fn blocked(&self, set: &SandboxSet, now: Timestamp) -> Blocked {
        let members = self
            .sandboxes
            .owned_by(set.metadata.uid.as_deref().unwrap_or_default());
        let pending = SignedDuration::try_from(self.times.pending).unwrap_or(SignedDuration::MAX);
        let count = members
            .iter()
            .filter(|one| does_not_start(one, pending, now));
        let strategy = set.spec.scale_strategy.as_ref();
        let limit = strategy.and_then(|strategy| strategy.max_unavailable.clone());
        let limit = limit.unwrap_or_else(|| IntOrString::String(STARTUP_BUDGET.to_owned()));
        Blocked {
            count: count.count(),
            most: set::resolve(
                &limit,
                usize::try_from(set.spec.replicas).unwrap_or_default(),
            ),
        }
    }

    /// Carries a decision out. The condition `AbleToScale`.
    async fn scale(
        &self,
        scaler: &PoolAutoscaler,
        set: &SandboxSet,
        decision: &Decision,
        status: &mut PoolAutoscalerStatus,
        now: Timestamp,
    ) -> (Truth, &'static str, String) {
        if let Some(why) = &decision.blocked {
            return (Truth::False, reason::STARTUP_BUDGET_EXHAUSTED, why.clone());
        }
        let Some(why) = &decision.why else {
            return (Truth::True, reason::READY_TO_SCALE, String::new());
        };
        if let Err(failure) = self.resize(set, decision.replicas).await {
            return (Truth::False, reason::FAILED_SCALE, failure.to_string());
        }
        status.last_scale_time = Some(Time(now));
        let (before, after) = (set.spec.replicas, decision.replicas);
        let shrinks = after < before;
        if shrinks {
            let uid = scaler.metadata.uid.as_deref().unwrap_or_default();
            if let Some(known) = self.known.lock().get_mut(uid) {
                known.last_shrink = Some(now);
            }
        }
        let reason = if shrinks { "ScaledDown" } else { "ScaledUp" };
        let name = &scaler.spec.scale_target_ref.name;
        let note = format!("SandboxSet {name:?} from {before} to {after} replicas: {why}");
        self.cluster.event(scaler, false, reason, note);
        (Truth::True, reason::READY_TO_SCALE, String::new())
    }

    async fn resize(&self, set: &SandboxSet, replicas: i32) -> Result<(), Failure> {
        let (namespace, name) = key(set);
        // Another pool of the name is another matter.
        let patch = json!({"metadata": {"uid": set.metadata.uid}, "spec": {"replicas": replicas}});
        let scaled = self
            .cluster
            .patch_scale::<SandboxSet>(&namespace, &name, &patch);
        match scaled.await {
            Ok(()) => {}
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        // The next pass must not decide from the size before.
        if let Some(newest) = self.cluster.get::<SandboxSet>(&namespace, &name).await? {
            self.sets.learn(newest);
        }
        Ok(())
    }
}

fn read_target(scaler: &PoolAutoscaler) -> Result<Option<Target>, String> {
    let spec = &scaler.spec;
    // The definition refuses these; an older one may not have.
    if spec.min_replicas > spec.max_replicas {
        return Err("minReplicas is more than maxReplicas".to_owned());
    }
    let Some(policy) = &spec.capacity_policy else {
        return Ok(None);
    };
    let target = Target::read(policy)?;
    target.check(spec)?;
    Ok(Some(target))
}

fn does_not_start(sandbox: &Sandbox, pending: SignedDuration, now: Timestamp) -> bool {
    let ready = sandbox.condition(condition::READY);
    let failed = ready.is_some_and(|ready| {
        let reason = ready.reason.as_str();
        [reason::POD_CREATE_FAILED, reason::START_CONTAINER_FAILED].contains(&reason)
    });
    let phase = sandbox.status.as_ref().and_then(|status| status.phase);
    let waits = phase.unwrap_or_default() == SandboxPhase::Pending;
    let created = sandbox.metadata.creation_timestamp.as_ref();
    let old = created.is_some_and(|created| now.duration_since(created.0) > pending);
    failed || (waits && old)
}
