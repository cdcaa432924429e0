//! A custom resource as the record that the API layer reads.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp as Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use shoal_core::auth::Token;
use shoal_core::clock::Timestamp;
use shoal_core::driver::{Phases, StartKind, StartReport};
use shoal_core::id::{SandboxId, TemplateId};
use shoal_core::network::{Egress, NetworkPolicy, RequestedNetwork};
use shoal_core::ports::list::Listed;
use shoal_core::sandbox::{Lifecycle, OnTimeout, Purpose, SandboxRecord, SandboxSpec, TokenSalts};
use shoal_core::snapshot::{Contents, Saved};
use shoal_core::state::{FailReason, KillReason, State, StateKind};
use shoal_crds::kruise::names::{annotation, condition, content, is_key, is_reserved, label};
use shoal_crds::kruise::{InitRequest, Sandbox, SandboxPhase, SandboxState};
use shoal_crds::parts::Pairs;
use shoal_protocol::init::IDENTITY_VARIABLES;

use crate::{identity, pod};

/// The metadata key with the namespace and the name of the custom resource.
const SANDBOX_RESOURCE: &str = "e2b.agents.kruise.io/sandbox-resource";

/// Later deadlines count as none: clients that pause forever write a hundred years.
const FOR_EVER: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

/// The record of a sandbox.
pub(crate) fn of(sandbox: &Sandbox, now: Time) -> SandboxRecord {
    let (namespace, name) = identity::key(&sandbox.metadata);
    let created = claimed_at(sandbox);
    let status = sandbox.status.clone().unwrap_or_default();
    let pod = &status.pod_info;
    let address = sandbox.address();
    let deadline = sandbox.spec.pause_time.as_ref();
    let deadline = deadline.or(sandbox.spec.shutdown_time.as_ref()).map(at);
    SandboxRecord {
        id: identity::sandbox_id(sandbox),
        team: identity::team(&namespace),
        execution: identity::execution(&pod.pod_uid, &pod.pod_ip),
        spec: spec(sandbox, &namespace, &name, created, deadline),
        state: state(sandbox, now),
        created_at: created,
        started_at: created,
        deadline: deadline.unwrap_or(created),
        since: created,
        report: address.map(|address| report(sandbox, address)),
        resizing: sandbox.is_updating(),
        aim: None,
        tokens: TokenSalts::default(),
        idempotency: None,
    }
}

/// The fields of a sandbox by which lists select and sort. A record takes ten times as long to make.
pub(crate) struct Brief {
    sandbox: Arc<Sandbox>,
    id: SandboxId,
    started_at: Timestamp,
    state: StateKind,
}

impl Brief {
    pub(crate) fn of(sandbox: Arc<Sandbox>, now: Time) -> Self {
        Self {
            id: identity::sandbox_id(&sandbox),
            started_at: claimed_at(&sandbox),
            state: state(&sandbox, now).kind(),
            sandbox,
        }
    }

    pub(crate) fn record(&self, now: Time) -> Arc<SandboxRecord> {
        Arc::new(of(&self.sandbox, now))
    }
}

impl Listed for Brief {
    fn started_at(&self) -> Timestamp {
        self.started_at
    }

    fn id(&self) -> &SandboxId {
        &self.id
    }

    fn state(&self) -> StateKind {
        self.state
    }

    fn is_user_visible(&self) -> bool {
        self.state.is_live()
    }

    fn has_metadata(&self, wanted: &BTreeMap<String, String>) -> bool {
        if wanted.is_empty() {
            return true;
        }
        let (namespace, name) = identity::key(&self.sandbox.metadata);
        let own = metadata(&self.sandbox, &namespace, &name);
        wanted
            .iter()
            .all(|(key, value)| own.get(key) == Some(value))
    }

    fn is_of(&self, template: &TemplateId) -> bool {
        let (namespace, name) = identity::key(&self.sandbox.metadata);
        template_of(&self.sandbox, &namespace, &name).0 == *template
    }
}

/// The template of a sandbox, and its name.
fn template_of<'a>(sandbox: &'a Sandbox, namespace: &str, name: &'a str) -> (TemplateId, &'a str) {
    let labels = sandbox.metadata.labels.as_ref();
    let template_name = labels.and_then(|labels| labels.get(label::SANDBOX_TEMPLATE));
    let template_name = template_name.map_or(name, String::as_str);
    let entry = sandbox.annotation(annotation::TEMPLATE_ENTRY);
    // A clone is of its snapshot.
    let snapshot = sandbox.annotation(annotation::RESTORE_FROM);
    let template_name = entry.or(snapshot).unwrap_or(template_name);
    let id = match entry {
        Some(entry) => TemplateId::of_catalogue(&entry.to_ascii_lowercase()),
        None => identity::template(namespace, template_name),
    };
    (id, template_name)
}

fn spec(
    sandbox: &Sandbox,
    namespace: &str,
    name: &str,
    created: Timestamp,
    deadline: Option<Timestamp>,
) -> SandboxSpec {
    let template = sandbox.spec.template.as_ref();
    let (template_id, template_name) = template_of(sandbox, namespace, name);
    SandboxSpec {
        template: template_id,
        template_name: Some(template_name.to_owned()),
        template_key: Some(template_name.to_owned()),
        image: pod::image(template),
        runtime: Some(pod::runtime(template)),
        runtime_from_operator: true,
        resources: pod::resources(template),
        user: String::new(),
        workdir: None,
        env: variables(sandbox),
        metadata: metadata(sandbox, namespace, name),
        lifecycle: lifecycle(sandbox, created, deadline),
        network: network(sandbox),
        template_network: RequestedNetwork::default(),
        secure: access_token(sandbox).is_some(),
        persistent: contents(sandbox),
        cpu_ceiling: pod::resources(template).cpu,
        snapshot: None,
        start: None,
        start_env: BTreeMap::new(),
        purpose: Purpose::Use,
        port: port(sandbox),
        privileged: false,
    }
}

/// The port that its entry of the catalogue names.
pub(crate) fn port(sandbox: &Sandbox) -> Option<NonZeroU16> {
    sandbox.annotation(annotation::TEMPLATE_ENTRY)?;
    pod::port(sandbox.spec.template.as_ref())
}

/// The variables of its user.
fn variables(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let mut variables = InitRequest::of(sandbox).unwrap_or_default().env_vars;
    variables.retain(|name, _| !IDENTITY_VARIABLES.contains(&name.as_str()));
    variables
}

fn lifecycle(sandbox: &Sandbox, created: Timestamp, deadline: Option<Timestamp>) -> Lifecycle {
    let pauses = sandbox.spec.pause_time.is_some();
    let left = deadline.map(|deadline| deadline.since(created));
    Lifecycle {
        timeout: left.unwrap_or_default(),
        on_timeout: if pauses {
            OnTimeout::Pause
        } else {
            OnTimeout::Kill
        },
        auto_resume: false,
        keep_memory: contents(sandbox).has_memory(),
        endless: left.is_none_or(|left| left > FOR_EVER),
    }
}

/// Labels and annotations, but for reserved ones and those of Kubernetes' own tools.
fn metadata(sandbox: &Sandbox, namespace: &str, name: &str) -> BTreeMap<String, String> {
    let own = |key: &&String| {
        !is_reserved(key)
            && !key.starts_with("kubectl.kubernetes.io/")
            && !key.starts_with("sandbox.agents.kruise.io/")
    };
    let pairs = [&sandbox.metadata.labels, &sandbox.metadata.annotations];
    let pairs = pairs.into_iter().flatten().flat_map(Pairs::iter);
    let mut metadata: BTreeMap<String, String> = pairs
        .filter(|(key, _)| own(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let others = sandbox.annotation(annotation::OTHER_METADATA);
    let others = others.and_then(|others| serde_json::from_str::<Pairs>(others).ok());
    // Only keys that no annotation can have: nothing is hidden behind them.
    let others = others.into_iter().flatten().filter(|(key, _)| !is_key(key));
    metadata.extend(others);
    metadata.insert(SANDBOX_RESOURCE.to_owned(), format!("{namespace}/{name}"));
    if sandbox.annotation(annotation::RETURN_SANDBOX_IP) == Some("true") {
        metadata.insert(annotation::RETURN_SANDBOX_IP.to_owned(), "true".to_owned());
    }
    metadata
}

fn network(sandbox: &Sandbox) -> NetworkPolicy {
    let labels = sandbox.metadata.labels.as_ref();
    let internet = labels.and_then(|labels| labels.get(label::ALLOW_INTERNET_ACCESS));
    NetworkPolicy {
        egress: Egress {
            internet: internet.map(|value| value == "true"),
            ..Egress::default()
        },
        allow_public_traffic: traffic_access_token(sandbox).is_none(),
        ..NetworkPolicy::default()
    }
}

fn contents(sandbox: &Sandbox) -> Contents {
    let memory = sandbox
        .spec
        .persistent_contents
        .iter()
        .any(|kept| kept == content::MEMORY);
    Contents::with_memory(memory)
}

/// The state, in the words of the ports.
pub(crate) fn state(sandbox: &Sandbox, now: Time) -> State {
    let (state, reason) = SandboxState::of(sandbox, now);
    let phase = sandbox.status.as_ref().and_then(|status| status.phase);
    match (state, phase) {
        (SandboxState::Creating | SandboxState::Available, _) => State::Creating,
        (SandboxState::Running, _) => State::Running,
        // Its pod runs on.
        (SandboxState::Paused, Some(SandboxPhase::Paused)) if sandbox.pause_failure().is_some() => {
            State::Running
        }
        (SandboxState::Paused, Some(SandboxPhase::Resuming)) => State::Resuming(saved(sandbox)),
        (SandboxState::Paused, _) if !sandbox.spec.paused => State::Resuming(saved(sandbox)),
        (SandboxState::Paused, _) if sandbox.holds(condition::SANDBOX_PAUSED) => {
            State::Paused(saved(sandbox))
        }
        (SandboxState::Paused, _) => State::Pausing,
        (SandboxState::Dead, _) if reason == "ResourceDeleted" => {
            State::Terminating(KillReason::Requested)
        }
        (SandboxState::Dead, _) if reason == "ShutdownTimeReached" => {
            State::Terminating(KillReason::TimedOut)
        }
        // Its pod is not ready: it may be again, as after a restart of a container.
        (SandboxState::Dead, Some(SandboxPhase::Running)) => State::Running,
        (SandboxState::Dead, Some(SandboxPhase::Succeeded)) => State::Failed(FailReason::Exited),
        (SandboxState::Dead, _) => State::Failed(FailReason::Vanished),
    }
}

/// The kept contents of a paused sandbox.
fn saved(sandbox: &Sandbox) -> Saved {
    Saved {
        contents: contents(sandbox),
        runtime: pod::runtime(sandbox.spec.template.as_ref()),
        freeze: Duration::ZERO,
        memory_bytes: 0,
        file_bytes: 0,
        copied: String::new(),
    }
}

fn report(sandbox: &Sandbox, address: IpAddr) -> StartReport {
    let labels = sandbox.metadata.labels.as_ref();
    let pooled = labels.is_some_and(|labels| labels.contains_key(label::SANDBOX_POOL));
    let template = sandbox.spec.template.as_ref();
    let runtime = pod::runtime(template);
    StartReport {
        isolation: pod::isolation(&runtime),
        runtime,
        origin: if pooled {
            StartKind::Pooled
        } else {
            StartKind::Cold
        },
        phases: Phases::default(),
        address,
        envd_version: String::new(),
        keeps_connections: false,
    }
}

/// When the sandbox was claimed, or else created.
fn claimed_at(sandbox: &Sandbox) -> Timestamp {
    let claimed = sandbox.annotation(annotation::CLAIM_TIMESTAMP);
    let claimed = claimed.and_then(Timestamp::parse_rfc3339);
    let created = sandbox.metadata.creation_timestamp.as_ref().map(at);
    claimed.or(created).unwrap_or_default()
}

fn at(time: &MetaTime) -> Timestamp {
    Timestamp::from_unix_millis(time.0.as_millisecond())
}

/// The token that the daemon inside requires.
pub(crate) fn access_token(sandbox: &Sandbox) -> Option<Token> {
    let text = sandbox
        .annotation(annotation::RUNTIME_ACCESS_TOKEN)
        .or_else(|| sandbox.annotation(annotation::ENVD_ACCESS_TOKEN))?;
    serde_json::from_value(text.into()).ok()
}

/// The token that requests to its ports require; none if they are public.
pub(crate) fn traffic_access_token(sandbox: &Sandbox) -> Option<Token> {
    let text = sandbox.annotation(annotation::TRAFFIC_ACCESS_TOKEN)?;
    serde_json::from_value(text.into()).ok()
}

/// Whether users see the sandbox: it is claimed, or was created outside of a pool.
pub(crate) fn is_claimed(sandbox: &Sandbox) -> bool {
    !sandbox.is_pooled()
        && sandbox.label(label::SANDBOX_CLAIMED) != Some("false")
        && sandbox.label(label::RESERVED_FAILED_SANDBOX) != Some("true")
}

#[cfg(test)]
mod tests;
