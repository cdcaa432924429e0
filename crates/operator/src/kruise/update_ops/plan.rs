//! The next sandboxes of an update, and its progress.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use shoal_crds::kruise::names::{annotation, condition, is_label_value, label, reason};
use shoal_crds::kruise::{
    Sandbox, SandboxPhase, SandboxState, SandboxUpdateOps, SandboxUpdateOpsSpec, UpdateOpsState,
    UpgradePolicy, UpgradePolicyKind, revision, strategic,
};
use shoal_crds::parts::PodTemplate;

use crate::patch;

/// A sandbox that the selector selects, with its template.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) template: PodTemplate,
}

/// A merge patch of a sandbox.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) patch: Value,
}

/// How many sandboxes are where, and what to do next.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    pub(super) all: usize,
    pub(super) updated: usize,
    pub(super) updating: usize,
    pub(super) failed: usize,
    pub(super) waiting: usize,
}

impl Plan {
    /// Whether nothing is left to do.
    pub(super) fn is_finished(&self) -> bool {
        self.waiting == 0 && self.updating == 0 && self.changes.is_empty()
    }

    /// Whether failures leave no room for those that wait.
    pub(super) fn is_blocked(&self) -> bool {
        self.waiting > 0 && self.failed > 0 && self.updating == 0 && self.changes.is_empty()
    }
}

/// The progress of one sandbox.
enum Progress {
    /// It has not started. The change starts it.
    Waiting(Value),
    Updating,
    /// It is resumed, and gets the new template.
    Resumed(Value),
    /// It is updated. The change removes what the update needed.
    Updated(Option<Value>),
    /// It failed. The change marks it.
    Failed(Option<Value>),
}

/// Why an update can never be carried out.
pub(super) fn refusal(ops: &SandboxUpdateOps) -> Option<String> {
    let spec = &ops.spec;
    if !ops.metadata.name.as_deref().is_some_and(is_label_value) {
        return Some(
            "its name is no value of a label: use one of at most 63 characters".to_owned(),
        );
    }
    let hooks = spec.lifecycle.iter();
    let hooks = hooks.flat_map(|hooks| [&hooks.pre_upgrade, &hooks.post_upgrade]);
    let has_command = |hook: &shoal_crds::kruise::LifecycleHook| {
        hook.exec
            .as_ref()
            .is_some_and(|exec| !exec.command.is_empty())
    };
    if !hooks.flatten().all(has_command) {
        return Some("a hook of spec.lifecycle has no exec.command".to_owned());
    }
    let restores = policy(spec) == UpgradePolicyKind::CheckpointRestore;
    let changes_images = ["containers", "initContainers"].iter().any(|list| {
        let containers = spec.patch.get("spec").and_then(|spec| spec.get(list));
        let mut containers = containers.and_then(Value::as_array).into_iter().flatten();
        containers.any(|container| container.get("image").is_some())
    });
    (restores && changes_images)
        .then(|| "CheckpointRestore cannot change images: use Recreate".to_owned())
}

fn policy(spec: &SandboxUpdateOpsSpec) -> UpgradePolicyKind {
    let strategy = spec.update_strategy.as_ref();
    strategy
        .and_then(|strategy| strategy.kind)
        .unwrap_or_default()
}

/// How many of `all` may be unavailable at once. A percentage is rounded up; what cannot be read means one.
fn most_unavailable(spec: &SandboxUpdateOpsSpec, all: usize) -> usize {
    let strategy = spec.update_strategy.as_ref();
    match strategy.and_then(|strategy| strategy.max_unavailable.as_ref()) {
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(0),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
            percent.map_or(1, |percent: usize| {
                percent.min(100).saturating_mul(all).div_ceil(100)
            })
        }
        None => 1,
    }
}

/// Whether an update has to do with a sandbox: it began it, or the sandbox is in one of its states.
pub(super) fn concerns(ops: &SandboxUpdateOps, sandbox: &Sandbox, now: Timestamp) -> bool {
    if sandbox.is_pooled() || sandbox.metadata.deletion_timestamp.is_some() {
        return false;
    }
    if is_marked(ops, sandbox) {
        return true;
    }
    let status = sandbox.status.as_ref();
    let phase = status.and_then(|status| status.phase).unwrap_or_default();
    let state = match phase {
        SandboxPhase::Paused if sandbox.holds(condition::SANDBOX_PAUSED) => UpdateOpsState::Paused,
        // An earlier update left it there.
        SandboxPhase::Upgrading if has_failed(sandbox) && sandbox.spec.paused => {
            UpdateOpsState::Paused
        }
        SandboxPhase::Upgrading if has_failed(sandbox) => UpdateOpsState::Running,
        _ if SandboxState::of(sandbox, now).0 == SandboxState::Running => UpdateOpsState::Running,
        _ => return false,
    };
    let filter = ops.spec.state_filter.as_ref();
    match filter.map(|filter| filter.states.as_slice()) {
        None | Some([]) => state == UpdateOpsState::Running,
        Some(states) => states.contains(&state),
    }
}

/// Whether an update has started with a sandbox.
pub(super) fn is_marked(ops: &SandboxUpdateOps, sandbox: &Sandbox) -> bool {
    sandbox.label(label::UPDATE_OPS).is_some()
        && sandbox.label(label::UPDATE_OPS) == ops.metadata.name.as_deref()
}

fn has_failed(sandbox: &Sandbox) -> bool {
    let known = sandbox.condition(condition::UPGRADING);
    known.is_some_and(|known| known.reason.ends_with("Failed"))
}

/// Whether the step of the upgrade is about the newest specification.
fn is_newest(sandbox: &Sandbox) -> bool {
    let known = sandbox.condition(condition::UPGRADING);
    known.is_some_and(|known| known.observed_generation == sandbox.metadata.generation)
}

/// Compares the sandboxes with the update.
///
/// # Errors
/// The mistake in the patch, when it makes no pod template.
pub(super) fn plan(ops: &SandboxUpdateOps, candidates: &[Candidate]) -> Result<Plan, String> {
    let mut plan = Plan {
        all: candidates.len(),
        ..Plan::default()
    };
    let mut waiting = Vec::new();
    for candidate in candidates {
        let sandbox = &candidate.sandbox;
        let progress = progress(ops, candidate)?;
        let change = match progress {
            Progress::Waiting(patch) => {
                waiting.push((sandbox.clone(), patch));
                continue;
            }
            Progress::Updating => {
                plan.updating += 1;
                continue;
            }
            Progress::Resumed(patch) => {
                plan.updating += 1;
                Some(patch)
            }
            Progress::Updated(patch) => {
                plan.updated += 1;
                patch
            }
            Progress::Failed(patch) => {
                plan.failed += 1;
                patch
            }
        };
        if let Some(patch) = change {
            let sandbox = sandbox.clone();
            plan.changes.push(Change { sandbox, patch });
        }
    }
    let room = most_unavailable(&ops.spec, plan.all).saturating_sub(plan.updating + plan.failed);
    let room = if ops.spec.paused { 0 } else { room };
    // Unfinished sandboxes of an earlier update come first: they are unavailable already.
    let (left, running): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .partition(|(sandbox, _)| has_failed(sandbox));
    let of_left = room.min(left.len());
    let of_running = room.saturating_sub(left.len()).min(running.len());
    plan.waiting = left.len() + running.len() - of_left - of_running;
    plan.updating += of_left + of_running;
    let begun = left.into_iter().take(of_left);
    let begun = begun.chain(running.into_iter().take(of_running));
    plan.changes
        .extend(begun.map(|(sandbox, patch)| Change { sandbox, patch }));
    Ok(plan)
}

fn progress(ops: &SandboxUpdateOps, candidate: &Candidate) -> Result<Progress, String> {
    let sandbox = &candidate.sandbox;
    let target = patched(ops, &candidate.template)?;
    let has_target = candidate.template == target;
    let status = sandbox.status.as_ref();
    let phase = status.and_then(|status| status.phase).unwrap_or_default();
    let known = sandbox.condition(condition::UPGRADING);
    let step = known.map(|known| known.reason.as_str()).unwrap_or_default();
    if !is_marked(ops, sandbox) {
        return Ok(match has_target && !has_failed(sandbox) {
            true => Progress::Updated(None),
            false => Progress::Waiting(begin(ops, sandbox, phase, target)),
        });
    }
    let is_resumed = sandbox
        .annotation(annotation::UPGRADE_RESUME_TRIGGER)
        .is_some();
    Ok(match phase {
        // A failure from before the change is not of this update.
        SandboxPhase::Upgrading if has_failed(sandbox) && is_newest(sandbox) => failed(sandbox),
        SandboxPhase::Upgrading if step == reason::RESUME_SUCCEED && !has_target => {
            Progress::Resumed(begin(ops, sandbox, SandboxPhase::Running, target))
        }
        SandboxPhase::Succeeded | SandboxPhase::Failed => failed(sandbox),
        // Its user has resumed it, or something else has undone the beginning.
        SandboxPhase::Running if !has_target => {
            Progress::Resumed(begin(ops, sandbox, phase, target))
        }
        SandboxPhase::Paused if !has_target && !is_resumed => {
            Progress::Resumed(begin(ops, sandbox, phase, target))
        }
        _ if has_target && step == reason::SUCCEEDED && rests(sandbox, phase) => {
            Progress::Updated(Some(cleaned(sandbox, true)))
        }
        _ => Progress::Updating,
    })
}

/// Whether a sandbox is running or paused, as its specification says, with the newest template.
fn rests(sandbox: &Sandbox, phase: SandboxPhase) -> bool {
    let in_place = match phase {
        SandboxPhase::Running => !sandbox.spec.paused,
        SandboxPhase::Paused => sandbox.holds(condition::SANDBOX_PAUSED),
        _ => false,
    };
    in_place && is_observed(sandbox)
}

fn failed(sandbox: &Sandbox) -> Progress {
    let marked = sandbox.label(label::UPGRADE_FAILED).is_some();
    let mark = json!({"metadata": {"labels": {label::UPGRADE_FAILED: "true"}}});
    Progress::Failed((!marked).then_some(mark))
}

/// Whether the controller of sandboxes has seen the newest template.
fn is_observed(sandbox: &Sandbox) -> bool {
    let status = sandbox.status.as_ref();
    let seen = status.map(|status| status.update_revision.as_str());
    seen == revision::of_sandbox(&sandbox.spec).as_deref()
}

/// The template after the update.
fn patched(ops: &SandboxUpdateOps, template: &PodTemplate) -> Result<PodTemplate, String> {
    let wrong = |error| format!("spec.patch makes no pod template: {error}");
    let patch = Value::Object(ops.spec.patch.clone());
    strategic::check(&patch).map_err(|why| format!("spec.patch: {why}"))?;
    let mut target = serde_json::to_value(template).map_err(wrong)?;
    strategic::apply(&mut target, &patch);
    serde_json::from_value(target).map_err(wrong)
}

/// The change that begins the update of a sandbox: a paused one is resumed first.
fn begin(
    ops: &SandboxUpdateOps,
    sandbox: &Sandbox,
    phase: SandboxPhase,
    target: PodTemplate,
) -> Value {
    let mut begun = sandbox.clone();
    let labels = begun.metadata.labels.get_or_insert_default();
    let name = ops.metadata.name.clone().unwrap_or_default();
    labels.insert(label::UPDATE_OPS.to_owned(), name);
    labels.remove(label::UPGRADE_FAILED);
    begun.spec.upgrade_policy = Some(UpgradePolicy {
        kind: Some(policy(&ops.spec)),
    });
    if ops.spec.lifecycle.is_some() {
        begun.spec.lifecycle.clone_from(&ops.spec.lifecycle);
    }
    let annotations = begun.metadata.annotations.get_or_insert_default();
    if phase == SandboxPhase::Paused {
        annotations.insert(
            annotation::UPGRADE_RESUME_TRIGGER.to_owned(),
            "true".to_owned(),
        );
    } else {
        annotations.remove(annotation::UPGRADE_RESUME_TRIGGER);
        begun.spec.template = Some(target);
        begun.spec.template_ref = None;
    }
    between(sandbox, &begun)
}

/// The change that removes what an update has left on a sandbox. `done` removes the policy, too.
pub(super) fn cleaned(sandbox: &Sandbox, done: bool) -> Value {
    let mut cleaned = sandbox.clone();
    let labels = cleaned.metadata.labels.get_or_insert_default();
    labels.remove(label::UPDATE_OPS);
    labels.remove(label::UPGRADE_FAILED);
    let annotations = cleaned.metadata.annotations.get_or_insert_default();
    annotations.remove(annotation::UPGRADE_RESUME_TRIGGER);
    if done {
        cleaned.spec.upgrade_policy = None;
    }
    between(sandbox, &cleaned)
}

fn between(before: &Sandbox, after: &Sandbox) -> Value {
    patch::between(&json!(before), &json!(after)).unwrap_or_else(|| json!({}))
}

#[cfg(test)]
mod tests;
