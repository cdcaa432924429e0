//! The sandboxes of a claim, and its needs.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use shoal_crds::kruise::duration::DurationText;
use shoal_crds::kruise::names::{annotation, condition, label, reason};
use shoal_crds::kruise::{InitRequest, Sandbox, SandboxClaim, SandboxPhase};

/// How long a claim looks for sandboxes if it does not say.
const CLAIM_TIMEOUT: SignedDuration = SignedDuration::from_mins(1);
/// How long a sandbox may take to become ready if its claim does not say.
const READY_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);
/// How long a completed claim stays if it does not say.
const KEPT: SignedDuration = SignedDuration::from_mins(60);

/// The present and the wanted state of a claim.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// How many sandboxes its user has: as many as ever were usable, although some may be gone.
    pub(super) delivered: usize,
    /// The ones that no pass has counted yet.
    pub(super) new: Vec<Arc<Sandbox>>,
    /// Sandboxes that failed and are kept.
    pub(super) reserved: usize,
    /// Sandboxes that are claimed and not usable yet.
    pub(super) pending: Vec<Arc<Sandbox>>,
    /// Sandboxes that did not become usable in time.
    pub(super) failed: Vec<Arc<Sandbox>>,
    /// Surplus sandboxes: another operator, which has just lost its lease, claimed too.
    pub(super) surplus: Vec<Arc<Sandbox>>,
    /// How many sandboxes are still to be claimed.
    pub(super) missing: usize,
    /// When the next pending sandbox has taken too long.
    pub(super) next: Option<Timestamp>,
}

/// How a claim ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Plan {
    /// The plan for a claim, whose UID the `owned` sandboxes name as their owner.
    pub(super) fn of(claim: &SandboxClaim, owned: Vec<Arc<Sandbox>>, now: Timestamp) -> Self {
        let before = claim.status.as_ref();
        let before = before.map_or(0, |status| count(status.claimed_replicas));
        let (living, kept): (Vec<_>, Vec<_>) = owned
            .into_iter()
            .filter(|sandbox| sandbox.metadata.deletion_timestamp.is_none())
            .partition(|sandbox| !is_reserved(sandbox));
        // The user's sandboxes are the user's business.
        let (mut usable, rest): (Vec<_>, Vec<_>) = living
            .into_iter()
            .partition(|sandbox| is_delivered(sandbox) || is_usable(claim, sandbox));
        let delivered = before.max(usable.len());
        let mut plan = Self {
            delivered,
            reserved: kept.len(),
            ..Self::default()
        };
        for sandbox in rest {
            let until = deadline(claim, &sandbox);
            if is_over(&sandbox) || until <= now {
                plan.failed.push(sandbox);
            } else {
                plan.next = Some(plan.next.map_or(until, |next| next.min(until)));
                plan.pending.push(sandbox);
            }
        }
        plan.pending
            .sort_by_key(|one| (claimed_at(one), one.metadata.name.clone()));
        let wanted = wanted(claim);
        plan.missing = wanted.saturating_sub(delivered + plan.pending.len());
        let mut excess = (usable.len() + plan.pending.len()).saturating_sub(wanted);
        // Every operator takes the same for superfluous.
        usable.sort_by_key(|sandbox| (claimed_at(sandbox), sandbox.metadata.name.clone()));
        for list in [&mut plan.pending, &mut usable] {
            let kept = list.len().saturating_sub(excess);
            excess -= list.len() - kept;
            plan.surplus.extend(list.split_off(kept));
        }
        plan.delivered = plan.delivered.min(wanted);
        plan.new = usable
            .into_iter()
            .filter(|one| !is_delivered(one))
            .collect();
        plan
    }

    /// How the claim has ended, if it has. `refused` is why it cannot be fulfilled any more; `late` if its timeout expired.
    /// A claim with all of its sandboxes has succeeded, even if its set is gone.
    pub(super) fn over(
        &self,
        claim: &SandboxClaim,
        refused: Option<End>,
        late: bool,
    ) -> Option<End> {
        let (has, wanted) = (self.delivered, wanted(claim));
        if has >= wanted {
            return Some(End {
                reason: reason::ALL_REPLICAS_CLAIMED,
                message: format!("claimed {has} sandboxes"),
            });
        }
        let late = late.then(|| End {
            reason: reason::TIMEOUT_REACHED,
            message: format!("claimed {has} of {wanted} sandboxes in time"),
        });
        refused.or(late)
    }
}

/// How many sandboxes a claim asks for.
pub(super) fn wanted(claim: &SandboxClaim) -> usize {
    count(claim.spec.replicas.unwrap_or(1))
}

fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn or(text: Option<&DurationText>, default: SignedDuration) -> SignedDuration {
    text.and_then(DurationText::get).unwrap_or(default)
}

/// When a claim that began at a time ends without all of its sandboxes.
pub(super) fn end(claim: &SandboxClaim, begun: Timestamp) -> Timestamp {
    let time = or(claim.spec.claim_timeout.as_ref(), CLAIM_TIMEOUT);
    begun.checked_add(time).unwrap_or(Timestamp::MAX)
}

/// When a completed claim is deleted, if ever.
pub(super) fn deletion(claim: &SandboxClaim) -> Option<Timestamp> {
    let completed = claim.status.as_ref()?.completion_time.as_ref()?.0;
    let kept = or(claim.spec.ttl_after_completed.as_ref(), KEPT);
    let at = completed.checked_add(kept).unwrap_or(Timestamp::MAX);
    (!kept.is_negative()).then_some(at)
}

/// When a sandbox of the claim has taken too long.
fn deadline(claim: &SandboxClaim, sandbox: &Sandbox) -> Timestamp {
    let time = or(claim.spec.wait_ready_timeout.as_ref(), READY_TIMEOUT);
    let at = claimed_at(sandbox);
    at.checked_add(time).unwrap_or(Timestamp::MAX)
}

/// When the sandbox was claimed, or else created.
fn claimed_at(sandbox: &Sandbox) -> Timestamp {
    let claimed = sandbox.annotation(annotation::CLAIM_TIMESTAMP);
    let claimed = claimed.and_then(|text| text.parse().ok());
    let created = sandbox.metadata.creation_timestamp.as_ref();
    claimed.or(created.map(|at| at.0)).unwrap_or_default()
}

fn is_reserved(sandbox: &Sandbox) -> bool {
    sandbox.label(label::RESERVED_FAILED_SANDBOX) == Some("true")
}

fn is_delivered(sandbox: &Sandbox) -> bool {
    sandbox.annotation(annotation::DELIVERED) == Some("true")
}

/// Whether nothing makes the sandbox ready any more.
fn is_over(sandbox: &Sandbox) -> bool {
    let phase = sandbox.status.as_ref().and_then(|status| status.phase);
    matches!(
        phase,
        Some(SandboxPhase::Failed | SandboxPhase::Succeeded | SandboxPhase::Terminating)
    )
}

/// Whether the user of a claim can use the sandbox. A paused sandbox was usable before.
fn is_usable(claim: &SandboxClaim, sandbox: &Sandbox) -> bool {
    if sandbox.spec.paused {
        return true;
    }
    let observed = sandbox.status.as_ref();
    let observed = observed.map_or(0, |status| status.observed_generation);
    let initialized =
        InitRequest::of(sandbox).is_none() || sandbox.holds(condition::RUNTIME_INITIALIZED);
    // Before that, the status does not show the changes of the pod that the claim asked for.
    let spec = &claim.spec;
    let unchanged =
        spec.inplace_update.is_none() && spec.labels.is_empty() && spec.annotations.is_empty();
    let newest = unchanged || observed >= sandbox.metadata.generation.unwrap_or_default();
    newest && sandbox.is_ready() && !sandbox.is_updating() && !is_over(sandbox) && initialized
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shoal_crds::kruise::ClaimInplaceUpdate;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn claim(replicas: i32, delivered: i32) -> SandboxClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "spec": {"templateName": "pool", "replicas": replicas},
            "status": {"phase": "Claiming", "claimedReplicas": delivered},
        }))
        .unwrap()
    }

    /// A sandbox that was claimed at a time.
    fn sandbox(name: &str, second: i64, ready: bool) -> Value {
        let condition = json!({
            "type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "PodReady", "message": "",
            "lastTransitionTime": at(second).to_string(),
        });
        json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "generation": 2,
                "annotations": {annotation::CLAIM_TIMESTAMP: at(second).to_string()},
            },
            "spec": {},
            "status": {"phase": "Running", "observedGeneration": 2, "conditions": [condition]},
        })
    }

    fn plan(claim: &SandboxClaim, owned: &[Value], now: i64) -> Plan {
        let read = |value: &Value| Arc::new(serde_json::from_value(value.clone()).unwrap());
        Plan::of(claim, owned.iter().map(read).collect(), at(now))
    }

    fn counts(plan: &Plan) -> [usize; 4] {
        let (pending, failed) = (plan.pending.len(), plan.failed.len());
        [plan.delivered, pending, failed, plan.missing]
    }

    #[test]
    fn a_claim_needs_what_it_neither_has_nor_waits_for() {
        let owned = [sandbox("a", 100, true), sandbox("b", 100, false)];
        let made = plan(&claim(5, 0), &owned, 110);
        assert_eq!(counts(&made), [1, 1, 0, 3]);
        assert_eq!(made.next, Some(at(130)));
    }

    #[test]
    fn a_sandbox_that_takes_too_long_has_failed_and_is_replaced() {
        let owned = [sandbox("a", 100, true), sandbox("b", 100, false)];
        assert_eq!(counts(&plan(&claim(2, 0), &owned, 130)), [1, 0, 1, 1]);
        let mut over = sandbox("c", 100, false);
        over["status"]["phase"] = "Failed".into();
        assert_eq!(counts(&plan(&claim(1, 0), &[over], 101)), [0, 0, 1, 1]);
    }

    #[test]
    fn what_was_delivered_is_neither_replaced_nor_judged() {
        assert_eq!(counts(&plan(&claim(2, 2), &[], 1000)), [2, 0, 0, 0]);
        // It has crashed since, while another one is still awaited.
        let mut counted = sandbox("counted", 110, false);
        counted["metadata"]["annotations"][annotation::DELIVERED] = "true".into();
        let owned = [sandbox("hangs", 100, false), counted];
        let made = plan(&claim(2, 1), &owned, 1000);
        assert_eq!(counts(&made), [1, 0, 1, 1]);
        assert_eq!(made.failed[0].metadata.name.as_deref(), Some("hangs"));
        assert!(made.new.is_empty());
    }

    #[test]
    fn a_claim_that_has_all_is_well_without_its_set() {
        let refused = || {
            let (reason, message) = (reason::SANDBOX_SET_NOT_FOUND, String::new());
            Some(End { reason, message })
        };
        let ended = |has: i32, refused: Option<End>, late: bool| {
            let end = plan(&claim(2, has), &[], 100).over(&claim(2, has), refused, late);
            end.map(|end| end.reason)
        };
        assert_eq!(
            ended(2, refused(), true),
            Some(reason::ALL_REPLICAS_CLAIMED)
        );
        assert_eq!(
            ended(1, refused(), true),
            Some(reason::SANDBOX_SET_NOT_FOUND)
        );
        assert_eq!(ended(1, None, true), Some(reason::TIMEOUT_REACHED));
        assert_eq!(ended(1, None, false), None);
    }

    #[test]
    fn what_is_too_much_goes_and_the_newest_first() {
        let owned = [
            sandbox("b", 100, true),
            sandbox("pending", 90, false),
            sandbox("c", 101, true),
            sandbox("a", 100, true),
        ];
        let made = plan(&claim(2, 0), &owned, 110);
        let names: Vec<_> = made
            .surplus
            .iter()
            .map(|one| one.metadata.name.as_deref())
            .collect();
        assert_eq!(names, [Some("pending"), Some("c")]);
        assert_eq!(counts(&made), [2, 0, 0, 0]);
    }

    #[test]
    fn what_is_deleted_or_kept_as_failed_does_not_count() {
        let mut deleted = sandbox("a", 100, true);
        deleted["metadata"]["deletionTimestamp"] = at(101).to_string().into();
        let mut kept = sandbox("b", 100, false);
        kept["metadata"]["labels"] = json!({label::RESERVED_FAILED_SANDBOX: "true"});
        assert_eq!(
            counts(&plan(&claim(1, 0), &[deleted, kept], 500)),
            [0, 0, 0, 1]
        );
    }

    #[test]
    fn a_sandbox_is_usable_with_its_settings_and_its_new_processors() {
        let usable = |change: &dyn Fn(&mut Value)| {
            let mut sandbox = sandbox("a", 100, true);
            change(&mut sandbox);
            let mut claim = claim(1, 0);
            claim.spec.inplace_update = Some(ClaimInplaceUpdate::default());
            is_usable(&claim, &serde_json::from_value(sandbox).unwrap())
        };
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": at(1).to_string(),
            })
        };
        let add = |sandbox: &mut Value, condition: Value| {
            if let Some(known) = sandbox["status"]["conditions"].as_array_mut() {
                known.push(condition);
            }
        };
        assert!(usable(&|_| {}));
        assert!(!usable(
            &|sandbox| sandbox["metadata"]["generation"] = 3.into()
        ));
        assert!(usable(&|sandbox| {
            sandbox["metadata"]["generation"] = 3.into();
            sandbox["spec"]["paused"] = true.into();
        }));
        let updating = condition(condition::INPLACE_UPDATE, "False", "InplaceUpdating");
        assert!(!usable(&|sandbox| add(sandbox, updating.clone())));
        let settings = |sandbox: &mut Value| {
            sandbox["metadata"]["annotations"][annotation::INIT_RUNTIME_REQUEST] = "{}".into()
        };
        assert!(!usable(&settings));
        let taken = condition(condition::RUNTIME_INITIALIZED, "True", "Succeeded");
        assert!(usable(&|sandbox| {
            settings(sandbox);
            add(sandbox, taken.clone());
        }));
    }

    #[test]
    fn times_have_defaults_and_a_negative_one_keeps_the_claim() {
        let mut claim = claim(1, 0);
        assert_eq!(end(&claim, at(100)), at(160));
        assert_eq!(deletion(&claim), None);
        let status = claim.status.get_or_insert_default();
        status.completion_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(
            100,
        )));
        assert_eq!(deletion(&claim), Some(at(3700)));
        claim.spec.ttl_after_completed = Some(DurationText("-1s".to_owned()));
        assert_eq!(deletion(&claim), None);
        claim.spec.ttl_after_completed = Some(DurationText("0s".to_owned()));
        assert_eq!(deletion(&claim), Some(at(100)));
        claim.spec.claim_timeout = Some(DurationText("1h30m".to_owned()));
        assert_eq!(end(&claim, at(0)), at(5400));
    }
}
