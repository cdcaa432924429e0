//! Logs, metrics and use: from the API server, and from the daemons in the pods.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp as Time;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::clock::Timestamp;
use shoal_core::id::SandboxId;
use shoal_core::ports::NotServed;
use shoal_core::ports::observe::{
    LogEntry, LogLevel, LogQuery, Sample, SandboxEvent, SandboxEvents, Scope, SeenStream,
    SubscribeError, TeamSample, Telemetry as TelemetryPort, Use,
};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::resources::MilliCpu;
use shoal_core::sandbox::SandboxRecord;
use shoal_crds::kruise::Sandbox;
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::EnvdClient;

use crate::identity::key;
use crate::sandboxes::Sandboxes;
use crate::{failure, record};

/// The most lines of a pod's log that one request reads.
const LINES: i64 = 10_000;

/// The most bytes of it.
const BYTES: i64 = 4 << 20;

/// How long a daemon may take to say what its sandbox uses.
const METRICS: Duration = Duration::from_secs(5);

/// Observes the sandboxes.
pub(crate) struct Telemetry(pub(crate) Arc<Sandboxes>);

impl Telemetry {
    async fn log(
        &self,
        principal: &Principal,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<Vec<LogEntry>, SandboxError> {
        let missing = || SandboxError::NotFound(id.clone());
        let sandbox = self.0.visible(id).ok_or_else(missing)?;
        let (namespace, _) = key(&sandbox.metadata);
        if namespace != principal.slug.as_str() {
            return Err(missing());
        }
        let pods: Api<Pod> = Api::namespaced(self.0.client.clone(), &namespace);
        let params = LogParams {
            timestamps: true,
            tail_lines: Some(LINES),
            limit_bytes: Some(BYTES),
            container: container(&sandbox),
            ..LogParams::default()
        };
        let text = match pods.logs(sandbox.pod_name(), &params).await {
            Ok(text) => text,
            // A paused sandbox has no pod.
            Err(error) if failure::is_gone(&error) => String::new(),
            Err(error) => return Err(failure::store(&error).into()),
        };
        let entries = text.lines().filter_map(entry);
        let mut entries: Vec<_> = entries.filter(|entry| query.matches(entry)).collect();
        if query.backward {
            entries.reverse();
        }
        entries.truncate(query.limit);
        Ok(entries)
    }

    fn usage_of(&self, own: impl Fn(&Sandbox) -> bool) -> Use {
        let now = Time::now();
        let claimed = |sandbox: &Sandbox| record::is_claimed(sandbox) && own(sandbox);
        let sandboxes = self.0.watched.filter(claimed);
        let records = sandboxes.iter().map(|sandbox| record::of(sandbox, now));
        let records: Vec<_> = records.filter(|record| record.state.is_live()).collect();
        let mut states = BTreeMap::new();
        for record in &records {
            *states.entry(record.state.kind().to_string()).or_insert(0) += 1;
        }
        let of = |state: &str| states.get(state).copied().unwrap_or_default();
        let running = records.iter().filter(|record| counts(record));
        let sum = running
            .clone()
            .fold(0_u32, |sum, record| sum.saturating_add(record.cpu_kept().0));
        let teams: HashSet<_> = records.iter().map(|record| record.team).collect();
        Use {
            counted: running.clone().count(),
            starting: of("creating") + of("resuming"),
            cpu: MilliCpu(sum),
            memory_mib: running
                .map(|record| u64::from(record.memory_kept().0))
                .sum(),
            teams: teams.len(),
            states,
        }
    }
}

/// Whether a sandbox takes resources of the cluster.
fn counts(record: &SandboxRecord) -> bool {
    use shoal_core::state::StateKind;
    record.state.kind() != StateKind::Paused
}

/// The name of the main container.
fn container(sandbox: &Sandbox) -> Option<String> {
    let template = sandbox.spec.template.as_ref()?;
    let main = template.spec.get("containers")?.as_array()?.first()?;
    Some(main.get("name")?.as_str()?.to_owned())
}

/// A percentage, as samples have it.
#[expect(clippy::cast_possible_truncation, reason = "two decimals of 0 to 100")]
fn percent(used: f64) -> f32 {
    used as f32
}

/// A line of a pod's log: its time, a blank, and what the program wrote. The daemon's own lines are JSON.
fn entry(line: &str) -> Option<LogEntry> {
    let (at, message) = line.split_once(' ')?;
    let at = Timestamp::parse_rfc3339(at)?;
    let mut fields = BTreeMap::new();
    let mut entry = LogEntry {
        at,
        level: LogLevel::Info,
        message: message.to_owned(),
        fields: BTreeMap::new(),
    };
    if let Ok(serde_json::Value::Object(parts)) = serde_json::from_str(message) {
        for (name, value) in parts {
            let text = match value {
                serde_json::Value::String(text) => text,
                value => value.to_string(),
            };
            match name.as_str() {
                "message" => entry.message = text,
                "level" => {
                    entry.level = LogLevel::parse(&text).unwrap_or(LogLevel::Info);
                }
                "timestamp" => {}
                _ => drop(fields.insert(name, text)),
            }
        }
    }
    entry.fields = fields;
    Some(entry)
}

impl TelemetryPort for Telemetry {
    fn logs<'a>(
        &'a self,
        principal: &'a Principal,
        sandbox: &'a SandboxId,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, SandboxError>> {
        Box::pin(self.log(principal, sandbox, query))
    }

    /// The sandbox's current usage: no history is kept here.
    fn metrics<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> BoxFuture<'a, Vec<Sample>> {
        Box::pin(async move {
            let now = Timestamp::from_unix_millis(Time::now().as_millisecond());
            if end.is_some_and(|end| end < now) {
                return Vec::new();
            }
            let sandbox = self.0.visible(permit.sandbox());
            let asked = async {
                let sandbox = sandbox?;
                let address = SocketAddr::new(self.0.address(&sandbox)?, ENVD_PORT);
                let mut client = EnvdClient::at(address);
                if let Some(token) = record::access_token(&sandbox) {
                    client = client.with_sandbox_token(&token);
                }
                let used = client.metrics().await.ok()?;
                let cpu = record::of(&sandbox, Time::now()).spec.resources.cpu;
                Some(Sample {
                    at: now,
                    cpu_count: cpu.whole(),
                    cpu_used_percent: percent(used.cpu_used_pct),
                    memory_used: used.mem_used,
                    memory_total: used.mem_total,
                    memory_cache: used.mem_cache,
                    disk_used: used.disk_used,
                    disk_total: used.disk_total,
                    network: None,
                })
            };
            let sample = tokio::time::timeout(METRICS, asked).await;
            sample.ok().flatten().into_iter().collect()
        })
    }

    /// Events of sandboxes are events of Kubernetes, which keeps them.
    fn events<'a>(
        &'a self,
        _: &'a Principal,
        _: Option<&'a SandboxId>,
        _: usize,
    ) -> BoxFuture<'a, Vec<SandboxEvent>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// A replica sees only some of a team's requests, so its numbers would mislead.
    fn team_metrics<'a>(
        &'a self,
        _: &'a Principal,
        _: Timestamp,
        _: Timestamp,
    ) -> BoxFuture<'a, Vec<TeamSample>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn usage<'a>(&'a self, principal: &'a Principal) -> BoxFuture<'a, Use> {
        Box::pin(async move {
            let namespace = Some(principal.slug.as_str());
            self.usage_of(|sandbox| sandbox.metadata.namespace.as_deref() == namespace)
        })
    }

    fn usage_of_all<'a>(&'a self, principal: &'a Principal) -> BoxFuture<'a, Option<Use>> {
        Box::pin(async move { principal.admin.then(|| self.usage_of(|_| true)) })
    }
}

impl SandboxEvents for Telemetry {
    fn subscribe(&self, _: &Principal, _: Scope) -> Result<SeenStream, SubscribeError> {
        Err(SubscribeError::NotServed(NotServed {
            what: "the stream of events",
            instead: "watch the sandboxes of the cluster",
        }))
    }
}
