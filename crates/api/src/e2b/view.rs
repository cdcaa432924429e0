//! Sandboxes in E2B's representation.

use std::collections::BTreeMap;

use serde::Serialize;
use shoal_core::driver::{Isolation, StartKind};
use shoal_core::network::NetworkPolicy;
use shoal_core::sandbox::{OnTimeout, SandboxRecord};
use shoal_core::state::StateKind;
use shoal_protocol::ENVD_VERSION;

use super::kruise;
use crate::backend::Backend;

/// Deprecated but required: clients append it to ids.
pub(crate) const CLIENT_ID: &str = "6532622b";

/// The value for "no deadline", as OpenKruise's clients expect it.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// The range that means the whole internet when it is denied.
const EVERYWHERE: &str = "0.0.0.0/0";

/// The answer to create and connect.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "E2bSandbox"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    envd_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envd_access_token: Option<String>,
    traffic_access_token: Option<String>,
    domain: Option<String>,
    /// Where it says more than was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shoal: Option<Ran>,
}

/// The runtime and the origin, an addition to E2B's answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SandboxReport"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ran {
    runtime: String,
    #[cfg_attr(test, schemars(with = "String"))]
    isolation: Isolation,
    #[cfg_attr(test, schemars(with = "String"))]
    origin: StartKind,
    /// Milliseconds of each phase.
    phases: BTreeMap<&'static str, f64>,
    /// Whether the limits that it was asked to have are in force; absent when none were.
    #[serde(skip_serializing_if = "Option::is_none")]
    resize: Option<&'static str>,
}

impl Ran {
    /// The report of the last start; `None` before the first.
    pub(crate) fn of(record: &SandboxRecord) -> Option<Self> {
        let report = record.report.as_ref()?;
        let phases = report
            .phases
            .named()
            .map(|(name, time)| (name, millis(time)));
        Some(Self {
            runtime: report.runtime.to_string(),
            isolation: report.isolation,
            origin: report.origin,
            phases: phases.into_iter().collect(),
            resize: Self::resize_of(&record.spec.metadata, record.resizing),
        })
    }

    /// The phases as a `Server-Timing` header, which browsers' developer tools display.
    pub(crate) fn server_timing(&self) -> String {
        let phases: Vec<String> = self
            .phases
            .iter()
            .map(|(name, millis)| format!("{name};dur={millis}"))
            .collect();
        phases.join(", ")
    }
}

/// Milliseconds with three decimals.
fn millis(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

impl Sandbox {
    pub(crate) fn of(backend: &Backend, record: &SandboxRecord, domain: Option<String>) -> Self {
        let reveal = |token: Option<shoal_core::auth::Token>| token.map(|t| t.reveal().to_owned());
        Self {
            template_id: template_of(record),
            sandbox_id: record.id.to_string(),
            client_id: CLIENT_ID,
            envd_version: envd_version(record),
            alias: record.spec.template_name.clone(),
            envd_access_token: reveal(backend.access.envd_access_token(record)),
            traffic_access_token: reveal(backend.access.traffic_access_token(record)),
            domain,
            metadata: kruise::is_repeated(record).then(|| kruise::shown(record)),
            shoal: Ran::of(record),
        }
    }
}

fn envd_version(record: &SandboxRecord) -> String {
    let said = record
        .report
        .as_ref()
        .map(|report| report.envd_version.clone());
    said.filter(|version| !version.is_empty())
        .unwrap_or_else(|| ENVD_VERSION.to_owned())
}

/// One of a list.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedSandbox {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    started_at: String,
    end_at: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    metadata: BTreeMap<String, String>,
    state: &'static str,
    envd_version: String,
}

impl ListedSandbox {
    pub(crate) fn of(record: &SandboxRecord) -> Self {
        let resources = &record.spec.resources;
        Self {
            template_id: template_of(record),
            sandbox_id: record.id.to_string(),
            client_id: CLIENT_ID,
            alias: record.spec.template_name.clone(),
            started_at: record.started_at.to_string(),
            end_at: end_of(record),
            cpu_count: resources.cpu.whole(),
            memory_mb: resources.memory.0,
            disk_size_mb: resources.disk.0,
            metadata: kruise::shown(record),
            state: state(record),
            envd_version: envd_version(record),
        }
    }
}

/// The name or id of its template.
fn template_of(record: &SandboxRecord) -> String {
    let key = record.spec.template_key.clone();
    key.unwrap_or_else(|| record.spec.template.to_string())
}

/// Its deadline, in every API's format.
pub(crate) fn end_of(record: &SandboxRecord) -> String {
    let end = record.ends_at();
    end.map_or_else(|| NEVER.to_owned(), |end| end.to_string())
}

/// E2B has two states; a sandbox in transition shows the one that it will reach.
fn state(record: &SandboxRecord) -> &'static str {
    match record.state.kind() {
        StateKind::Pausing | StateKind::Paused => "paused",
        StateKind::Creating
        | StateKind::Running
        | StateKind::Resuming
        | StateKind::Parking
        | StateKind::Parked
        | StateKind::Waking
        | StateKind::Snapshotting
        | StateKind::Failed
        | StateKind::Terminating
        | StateKind::Terminated => "running",
    }
}

/// All of one.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxDetail {
    #[serde(flatten)]
    listed: ListedSandbox,
    #[serde(skip_serializing_if = "Option::is_none")]
    envd_access_token: Option<String>,
    allow_internet_access: Option<bool>,
    domain: Option<String>,
    network: Network,
    lifecycle: Lifecycle,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shoal: Option<Ran>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SandboxNetwork"))]
#[serde(rename_all = "camelCase")]
struct Network {
    allow_public_traffic: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allow_out: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deny_out: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dns_servers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mask_request_host: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SandboxLifecycle"))]
#[serde(rename_all = "camelCase")]
struct Lifecycle {
    auto_resume: bool,
    on_timeout: &'static str,
}

impl Network {
    fn of(policy: &NetworkPolicy) -> Self {
        let egress = &policy.egress;
        let mut deny_out: Vec<String> = egress.deny.iter().map(ToString::to_string).collect();
        if egress.internet == Some(false) && !deny_out.iter().any(|range| range == EVERYWHERE) {
            deny_out.push(EVERYWHERE.to_owned());
        }
        Self {
            allow_public_traffic: policy.allow_public_traffic,
            allow_out: egress.allow.iter().map(ToString::to_string).collect(),
            deny_out,
            dns_servers: egress.dns_servers.iter().map(ToString::to_string).collect(),
            mask_request_host: policy.mask_request_host.as_ref().map(ToString::to_string),
        }
    }
}

impl SandboxDetail {
    pub(crate) fn of(backend: &Backend, record: &SandboxRecord, domain: Option<String>) -> Self {
        let token = backend.access.envd_access_token(record);
        let lifecycle = &record.spec.lifecycle;
        Self {
            listed: ListedSandbox::of(record),
            envd_access_token: token.map(|token| token.reveal().to_owned()),
            allow_internet_access: record.spec.network.egress.internet,
            domain,
            network: Network::of(&record.spec.network),
            lifecycle: Lifecycle {
                auto_resume: lifecycle.auto_resume,
                on_timeout: match lifecycle.on_timeout {
                    OnTimeout::Kill => "kill",
                    OnTimeout::Pause => "pause",
                },
            },
            pause_mode: record.state.saved().map(|saved| {
                if saved.contents.has_memory() {
                    "full"
                } else {
                    "filesystem"
                }
            }),
            shoal: Ran::of(record),
        }
    }
}
