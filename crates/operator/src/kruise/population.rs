//! The gauges of `agents.kruise.io`, with OpenKruise's names. They are counted at each scrape, so that no series
//! outlives its object.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use shoal_crds::kruise::names::{condition, label};
use shoal_crds::kruise::{Sandbox, SandboxClaim, SandboxSet};

use crate::population::escaped;

/// The series of each metric.
#[derive(Default)]
struct Series(BTreeMap<&'static str, Vec<String>>);

impl Series {
    /// Adds a series of an object.
    fn add(&mut self, name: &'static str, of: &ObjectMeta, more: &[(&str, &str)], value: i64) {
        let namespace = of.namespace.as_deref().unwrap_or_default();
        let object = of.name.as_deref().unwrap_or_default();
        let labels = [("namespace", namespace), ("name", object)];
        let labels = labels.iter().chain(more);
        let labels: Vec<String> = labels
            .map(|(key, text)| format!("{key}=\"{}\"", escaped(text)))
            .collect();
        let series = format!("{name}{{{}}} {value}", labels.join(","));
        self.0.entry(name).or_default().push(series);
    }

    /// Adds the series of a time, if there is one.
    fn add_time(&mut self, name: &'static str, of: &ObjectMeta, time: Option<&Time>) {
        if let Some(time) = time {
            self.add(name, of, &[], time.0.as_second());
        }
    }

    fn text(self) -> String {
        let mut text = String::new();
        for (name, series) in self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# TYPE {name} gauge\n{}", series.join("\n"));
        }
        text
    }
}

/// All gauges, in the text format of Prometheus.
pub(crate) fn render(
    sandboxes: &[Arc<Sandbox>],
    sets: &[Arc<SandboxSet>],
    claims: &[Arc<SandboxClaim>],
) -> String {
    let mut series = Series::default();
    for sandbox in sandboxes {
        add_sandbox(&mut series, sandbox);
    }
    for set in sets {
        add_set(&mut series, set);
    }
    for claim in claims {
        add_claim(&mut series, claim);
    }
    series.text()
}

fn add_sandbox(series: &mut Series, sandbox: &Sandbox) {
    let meta = &sandbox.metadata;
    let status = sandbox.status.clone().unwrap_or_default();
    let of_label = |key: &str| sandbox.label(key).unwrap_or_default();
    let info = [
        ("sandbox_pool", of_label(label::SANDBOX_POOL)),
        ("node", status.node_name.as_str()),
        ("sandbox_template", of_label(label::SANDBOX_TEMPLATE)),
    ];
    series.add("sandbox_info", meta, &info, 1);
    series.add_time("sandbox_created", meta, meta.creation_timestamp.as_ref());
    let deleted = meta.deletion_timestamp.as_ref();
    series.add_time("sandbox_deletion_timestamp", meta, deleted);
    let phase = status.phase.unwrap_or_default();
    let phase = [("phase", phase.as_str())];
    series.add("sandbox_status_phase", meta, &phase, 1);
    let ready = sandbox.condition(condition::READY);
    let holds = ready.is_some_and(|ready| ready.status == "True");
    series.add("sandbox_status_ready", meta, &[], holds.into());
    let since = ready
        .filter(|_| holds)
        .map(|ready| &ready.last_transition_time);
    series.add_time("sandbox_status_ready_time", meta, since);
}

fn add_set(series: &mut Series, set: &SandboxSet) {
    let meta = &set.metadata;
    let status = set.status.clone().unwrap_or_default();
    series.add_time("sandboxset_created", meta, meta.creation_timestamp.as_ref());
    for (name, value) in [
        ("sandboxset_desired_replicas", set.spec.replicas),
        ("sandboxset_replicas", status.replicas),
        ("sandboxset_available_replicas", status.available_replicas),
        ("sandboxset_updated_replicas", status.updated_replicas),
        (
            "sandboxset_updated_available_replicas",
            status.updated_available_replicas,
        ),
    ] {
        series.add(name, meta, &[], value.into());
    }
}

fn add_claim(series: &mut Series, claim: &SandboxClaim) {
    let meta = &claim.metadata;
    let status = claim.status.clone().unwrap_or_default();
    let info = [
        ("template_name", claim.spec.template_name.as_str()),
        ("uid", meta.uid.as_deref().unwrap_or_default()),
    ];
    series.add("sandbox_claim_info", meta, &info, 1);
    series.add_time(
        "sandbox_claim_created",
        meta,
        meta.creation_timestamp.as_ref(),
    );
    if let Some(phase) = status.phase {
        let phase = format!("{phase:?}");
        let phase = [("phase", phase.as_str())];
        series.add("sandbox_claim_status_phase", meta, &phase, 1);
    }
    let (begun, ended) = (&status.claim_start_time, &status.completion_time);
    series.add_time("sandbox_claim_start_time", meta, begun.as_ref());
    series.add_time("sandbox_claim_completion_time", meta, ended.as_ref());
    let claimed = status.claimed_replicas.into();
    series.add("sandbox_claim_claimed_replicas", meta, &[], claimed);
    let desired = claim.spec.replicas.unwrap_or(1).into();
    series.add("sandbox_claim_desired_replicas", meta, &[], desired);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CREATED: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn objects_are_told_with_the_references_names() {
        let sandbox: Sandbox = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "s", "creationTimestamp": CREATED, "labels": {
                "agents.kruise.io/sandbox-pool": "code", "agents.kruise.io/sandbox-template": "code",
            }},
            "spec": {},
            "status": {"phase": "Running", "nodeName": "n", "conditions": [{
                "type": "Ready", "status": "True", "reason": "PodReady", "message": "", "lastTransitionTime": CREATED,
            }]},
        }))
        .unwrap();
        let set: SandboxSet = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "code"}, "spec": {"replicas": 3},
            "status": {"replicas": 2, "availableReplicas": 1, "updatedReplicas": 2},
        }))
        .unwrap();
        let claim: SandboxClaim = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "c", "uid": "u"},
            "spec": {"templateName": "co\"de", "replicas": 2},
            "status": {"phase": "Completed", "claimedReplicas": 1, "claimStartTime": CREATED},
        }))
        .unwrap();
        let text = render(&[Arc::new(sandbox)], &[Arc::new(set)], &[Arc::new(claim)]);
        for line in [
            "sandbox_info{namespace=\"ns\",name=\"s\",sandbox_pool=\"code\",node=\"n\",sandbox_template=\"code\"} 1",
            "sandbox_created{namespace=\"ns\",name=\"s\"} 1767225600",
            "sandbox_status_phase{namespace=\"ns\",name=\"s\",phase=\"Running\"} 1",
            "sandbox_status_ready{namespace=\"ns\",name=\"s\"} 1",
            "sandbox_status_ready_time{namespace=\"ns\",name=\"s\"} 1767225600",
            "sandboxset_desired_replicas{namespace=\"ns\",name=\"code\"} 3",
            "sandboxset_available_replicas{namespace=\"ns\",name=\"code\"} 1",
            "sandbox_claim_info{namespace=\"ns\",name=\"c\",template_name=\"co\\\"de\",uid=\"u\"} 1",
            "sandbox_claim_status_phase{namespace=\"ns\",name=\"c\",phase=\"Completed\"} 1",
            "sandbox_claim_start_time{namespace=\"ns\",name=\"c\"} 1767225600",
            "sandbox_claim_desired_replicas{namespace=\"ns\",name=\"c\"} 2",
            "# TYPE sandboxset_replicas gauge",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(!text.contains("sandbox_deletion_timestamp"));
        assert!(!text.contains("sandbox_claim_completion_time"));
        assert_eq!(render(&[], &[], &[]), "");
    }
}
