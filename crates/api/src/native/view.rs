//! Sandboxes in this API's representation.

use std::collections::BTreeMap;

use shoal_core::auth::Principal;
use shoal_core::resources::Resources;
use shoal_core::sandbox::{OnTimeout, RESERVED_PREFIX, SandboxRecord};
use shoal_core::state::StateKind;
use shoal_protocol::native::{LONGEST, Sandbox};

use crate::e2b::end_of;

/// The label with the program that was started in a sandbox: a JSON list of strings.
pub(super) const COMMAND_KEY: &str = "shoal/command";

/// A sandbox with all details, for its creator.
pub(super) fn whole(record: &SandboxRecord, principal: &Principal) -> Sandbox {
    Sandbox {
        env_vars: Some(record.spec.env.clone()),
        ..listed(record, principal)
    }
}

/// A sandbox in a list, without details that are secret or long.
pub(super) fn listed(record: &SandboxRecord, principal: &Principal) -> Sandbox {
    let spec = &record.spec;
    let (cpu, memory) = quantities(&spec.resources);
    let (cmd, args) = command(&spec.metadata);
    let template = spec.template_name.clone();
    Sandbox {
        name: record.name(),
        id: record.id.to_string(),
        template: template.unwrap_or_else(|| spec.template.to_string()),
        image: spec.image.to_string(),
        user: if record.team == principal.team {
            principal.slug.to_string()
        } else {
            record.team.to_string()
        },
        // Unclaimed pool members are not shown here.
        is_pool: false,
        cmd,
        args,
        env_vars: None,
        timeout: spec.lifecycle.timeout.as_secs(),
        idle_timeout: LONGEST,
        auto_pause: spec.lifecycle.on_timeout == OnTimeout::Pause,
        auto_resume: spec.lifecycle.auto_resume,
        workdir: spec.workdir.clone(),
        cpu_limit: cpu.clone(),
        memory_limit: memory.clone(),
        cpu,
        memory,
        port: record.default_port(),
        status: if record.state.is_parked() {
            StateKind::Running.to_string()
        } else {
            record.state.kind().to_string()
        },
        parked: record.state.is_parked(),
        created_at: record.created_at.to_string(),
        expires_at: end_of(record),
        runtime: record.report.as_ref().map(|ran| ran.runtime.to_string()),
        origin: record.report.as_ref().map(|ran| ran.origin.to_string()),
        metadata: labels(&spec.metadata),
    }
}

/// The user's labels without Shoal's own, which have separate fields.
fn labels(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = metadata
        .iter()
        .filter(|(key, _)| !key.starts_with(RESERVED_PREFIX));
    own.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Limits in Kubernetes' notation.
fn quantities(resources: &Resources) -> (String, String) {
    let Resources { cpu, memory, .. } = resources;
    (format!("{}m", cpu.0), format!("{}Mi", memory.0))
}

/// The program that was started, and its arguments. Users can set the label too, so an invalid
/// value is not shown.
fn command(metadata: &BTreeMap<String, String>) -> (String, Vec<String>) {
    let words = metadata.get(COMMAND_KEY);
    let words: Vec<String> = words
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let mut words = words.into_iter();
    (words.next().unwrap_or_default(), words.collect())
}
