//! Metrics, with the names that dashboards of `agents.x-k8s.io` use. Buckets begin at one millisecond.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use shoal_crds::kruise::SandboxSet;
use shoal_crds::names::{annotation, label};
use shoal_crds::v1beta1::{Sandbox, SandboxClaim, SandboxStatus, SandboxTemplate};

use crate::conditions;

/// Buckets of latencies, in milliseconds.
const MILLISECONDS: [f64; 24] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 150.0, 250.0, 500.0, 750.0, 1000.0, 1250.0, 1500.0,
    2000.0, 2500.0, 5000.0, 10_000.0, 30_000.0, 60_000.0, 120_000.0, 240_000.0, 300_000.0,
    600_000.0,
];

/// Starts counting.
///
/// # Errors
/// When a recorder is installed already.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_ms".to_owned()), &MILLISECONDS)?
        .install_recorder()?;
    metrics::gauge!("agent_sandbox_build_info", "git_version" => env!("CARGO_PKG_VERSION"))
        .set(1.0);
    Ok(handle)
}

fn is_ready(status: &SandboxStatus) -> bool {
    conditions::find(&status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Counts the time from a sandbox's creation until it is ready.
pub(crate) fn sandbox_status(sandbox: &Sandbox, before: &SandboxStatus, after: &SandboxStatus) {
    if is_ready(before) || !is_ready(after) {
        return;
    }
    let Some(created) = &sandbox.metadata.creation_timestamp else {
        return;
    };
    let latency = Timestamp::now().duration_since(created.0).as_millis_f64();
    if latency < 0.0 {
        return;
    }
    let launch_type = text(sandbox.metadata.labels.as_ref(), label::LAUNCH_TYPE);
    metrics::histogram!(
        "agent_sandbox_creation_latency_ms",
        "namespace" => sandbox.metadata.namespace.clone().unwrap_or_default(),
        "launch_type" => if launch_type.is_empty() { "cold".to_owned() } else { launch_type },
        "sandbox_template" => text(sandbox.metadata.annotations.as_ref(), annotation::TEMPLATE_REF),
    )
    .record(latency);
}

/// Counts a claim that got a sandbox, from a pool or a new one.
pub(crate) fn claimed(
    claim: &SandboxClaim,
    template: &SandboxTemplate,
    pool: Option<&str>,
    ready: bool,
) {
    metrics::counter!(
        "agent_sandbox_claim_creation_total",
        "namespace" => claim.metadata.namespace.clone().unwrap_or_default(),
        "sandbox_template" => template.metadata.name.clone().unwrap_or_default(),
        "launch_type" => if pool.is_some() { "warm" } else { "cold" },
        "warmpool_name" => pool.unwrap_or("none").to_owned(),
        "pod_condition" => if ready { "ready" } else { "not_ready" },
    )
    .increment(1);
}

/// Counts sandboxes that a pool of `agents.kruise.io` has made.
pub(crate) fn created(set: &SandboxSet, count: u64) {
    metrics::counter!(
        "sandboxset_sandboxes_created_total",
        "namespace" => set.metadata.namespace.clone().unwrap_or_default(),
        "name" => set.metadata.name.clone().unwrap_or_default(),
    )
    .increment(count);
}

/// Counts how long a claim took to become ready: since this replica saw it first, and since the times that a
/// client and an admission webhook wrote into it. Their clocks may differ from ours.
pub(crate) fn claim_ready(claim: &SandboxClaim, sandbox: &Sandbox, after: Duration) {
    let launch_type = text(sandbox.metadata.labels.as_ref(), label::LAUNCH_TYPE);
    let template = text(
        sandbox.metadata.annotations.as_ref(),
        annotation::TEMPLATE_REF,
    );
    let record = |name: &'static str, milliseconds: f64| {
        metrics::histogram!(
            name, "launch_type" => launch_type.clone(), "sandbox_template" => template.clone()
        )
        .record(milliseconds);
    };
    record(
        "agent_sandbox_claim_controller_startup_latency_ms",
        after.as_secs_f64() * 1000.0,
    );
    for (key, name) in [
        (
            annotation::WEBHOOK_FIRST_OBSERVED,
            "agent_sandbox_claim_startup_latency_ms",
        ),
        (
            annotation::CLIENT_FIRST_REQUESTED,
            "agent_sandbox_client_claim_startup_latency_ms",
        ),
    ] {
        let since = text(claim.metadata.annotations.as_ref(), key).parse::<Timestamp>();
        let passed = since.map(|since| Timestamp::now().duration_since(since).as_millis_f64());
        if let Ok(passed) = passed
            && passed >= 0.0
        {
            record(name, passed);
        }
    }
}

/// A label or annotation; empty if there is none.
fn text(map: Option<&BTreeMap<String, String>>, key: &str) -> String {
    map.and_then(|map| map.get(key))
        .cloned()
        .unwrap_or_default()
}
