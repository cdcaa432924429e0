//! Tools for sandboxes: create, list, pause, resume, fork, kill.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shoal_core::network::RequestedNetwork;
use shoal_core::ports::create::{Created, SandboxRequest};
use shoal_core::ports::list::ListFilter;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::StateKind;

use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;
use crate::session::make;

/// How long a sandbox lives that is made by a tool, in seconds, if the caller does not say.
const SECONDS: u64 = 900;

/// The most sandboxes of one list.
const LIST: usize = 50;
const LIST_MAX: usize = 500;

/// The most forks of one call.
const FORKS_MAX: usize = 10;

/// A sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Shown {
    /// Its id, by which other tools name it.
    sandbox: String,
    /// Its template.
    template: String,
    /// `running` or `paused`.
    state: &'static str,
    /// When it started.
    started_at: String,
    /// When it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_at: Option<String>,
    /// Whether it is the sandbox of this session, and ends with it.
    of_session: bool,
    /// Its labels.
    metadata: BTreeMap<String, String>,
}

impl Shown {
    pub(super) fn of(call: &Call, record: &SandboxRecord) -> Self {
        let template = record.spec.template_name.clone();
        let paused = matches!(record.state.kind(), StateKind::Pausing | StateKind::Paused);
        Self {
            sandbox: record.id.to_string(),
            template: template.unwrap_or_else(|| record.spec.template.to_string()),
            state: if paused { "paused" } else { "running" },
            started_at: record.started_at.to_string(),
            ends_at: record.ends_at().map(|end| end.to_string()),
            of_session: call.session.has().as_ref() == Some(&record.id),
            metadata: record.spec.metadata.clone(),
        }
    }

    pub(super) fn line(&self) -> String {
        let end = self.ends_at.as_deref().unwrap_or("never");
        let own = if self.of_session {
            ", of this session"
        } else {
            ""
        };
        format!(
            "{}  {} from {}, ends {end}{own}",
            self.sandbox, self.state, self.template
        )
    }
}

/// Sandboxes.
#[derive(Debug, Serialize, JsonSchema)]
struct List {
    /// The sandboxes, the newest first.
    sandboxes: Vec<Shown>,
    /// The `after` of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Arguments of `create_sandbox`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateArguments {
    /// The template, or a snapshot; the installation's default when absent.
    template: Option<String>,
    /// Seconds until it ends by itself: 900 when absent.
    timeout: Option<u64>,
    /// Environment variables of every process in it.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Labels, by which it is found again.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// Whether it reaches the internet: as its template says when absent.
    internet: Option<bool>,
}

/// Arguments of `list_sandboxes`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    /// Only those with all of these labels.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// The most sandboxes: 50 when absent, at most 500.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Arguments of tools for one sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OneArguments {
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// Arguments of `resume_sandbox`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResumeArguments {
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
    /// Seconds until it ends by itself: 900 when absent.
    timeout: Option<u64>,
}

/// Arguments of `fork_sandbox`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkArguments {
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
    /// How many copies: 1 when absent, at most 10.
    count: Option<usize>,
    /// Seconds until the copies end by themselves: 900 when absent.
    timeout: Option<u64>,
}

/// Copies of a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
struct Forks {
    /// The sandbox that was copied.
    sandbox: String,
    /// The copies.
    forks: Vec<Shown>,
    /// Why the others failed.
    errors: Vec<String>,
}

/// A sandbox after a change.
#[derive(Debug, Serialize, JsonSchema)]
struct Changed {
    /// The sandbox.
    sandbox: String,
    /// The outcome.
    state: &'static str,
}

pub(super) fn tools() -> Vec<Spec> {
    let create = About(
        "create_sandbox",
        "Create a sandbox",
        "Creates another sandbox, beside that of this session. Name it with `sandbox` in other tools. It does not end \
         with the session, but after its timeout or by kill_sandbox.",
    );
    let list = About(
        "list_sandboxes",
        "List sandboxes",
        "Lists the sandboxes of your team, the newest first.",
    );
    let pause = About(
        "pause_sandbox",
        "Pause a sandbox",
        "Saves the memory and files of a sandbox, and stops it. resume_sandbox continues it where it was.",
    );
    let resume = About(
        "resume_sandbox",
        "Resume a sandbox",
        "Continues a paused sandbox.",
    );
    let fork = About(
        "fork_sandbox",
        "Fork a sandbox",
        "Starts copies of a running sandbox, with its memory, files and processes. They do not end with the session.",
    );
    let kill = About(
        "kill_sandbox",
        "Kill a sandbox",
        "Ends a sandbox. Its files and memory are lost.",
    );
    vec![
        spec::<_, Shown, _>(&create, Effect::Adds, Some("sandbox.create"), create_one),
        spec::<_, List, _>(&list, Effect::Reads, None, list_all),
        spec::<_, Changed, _>(&pause, Effect::Changes, Some("sandbox.pause"), pause_one),
        spec::<_, Shown, _>(&resume, Effect::Adds, Some("sandbox.resume"), resume_one),
        spec::<_, Forks, _>(&fork, Effect::Adds, Some("sandbox.fork"), fork_one),
        spec::<_, Changed, _>(&kill, Effect::Changes, Some("sandbox.kill"), kill_one),
    ]
}

/// A timeout that the caller chose, or the default.
pub(super) fn lifetime(seconds: Option<u64>) -> Result<Duration, ToolError> {
    match seconds.unwrap_or(SECONDS) {
        0 => Err(ToolError::invalid("`timeout`: at least 1 second")),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

async fn create_one(call: Arc<Call>, arguments: CreateArguments) -> Result<Reply, ToolError> {
    let template = arguments.template.map(|template| template.parse());
    let template = template.transpose();
    let reserved = shoal_core::sandbox::RESERVED_PREFIX;
    if arguments
        .metadata
        .keys()
        .any(|key| key.starts_with(reserved))
    {
        return Err(ToolError::invalid(format_args!(
            "`metadata`: keys do not begin with {reserved}"
        )));
    }
    let mut network = RequestedNetwork::default();
    network.egress.internet = arguments.internet.filter(|open| !open);
    let request = SandboxRequest {
        template: template.map_err(|e| ToolError::invalid(format_args!("`template`: {e}")))?,
        timeout: lifetime(arguments.timeout)?,
        env: arguments.env,
        metadata: arguments.metadata,
        network,
        ..SandboxRequest::unnamed()
    };
    start(&call, request).await
}

/// Creates a sandbox that outlives the session.
pub(super) async fn start(call: &Call, request: SandboxRequest) -> Result<Reply, ToolError> {
    let bad = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if request.env.iter().any(bad) {
        return Err(ToolError::invalid(
            "`env` has a name or value that no environment can have",
        ));
    }
    let created = make(&call.ports, &call.caller.principal, request).await?;
    call.target(&created.record.id);
    let shown = Shown::of(call, &created.record);
    Ok(Reply::new(shown.line(), &shown))
}

async fn list_all(call: Arc<Call>, arguments: ListArguments) -> Result<Reply, ToolError> {
    let limit = arguments.limit.unwrap_or(LIST);
    if !(1..=LIST_MAX).contains(&limit) {
        return Err(ToolError::invalid(format_args!("`limit`: 1 to {LIST_MAX}")));
    }
    let after = arguments.after.map(|token| token.parse()).transpose();
    let filter = ListFilter {
        metadata: arguments.metadata,
        after: after.map_err(|e| ToolError::invalid(format_args!("`after`: {e}")))?,
        ..ListFilter::all(limit)
    };
    let page = call
        .ports
        .sandboxes
        .list(&call.caller.principal, &filter)
        .await;
    let list = List {
        sandboxes: page
            .sandboxes
            .iter()
            .map(|record| Shown::of(&call, record))
            .collect(),
        next: page.next.map(|next| next.to_string()),
    };
    let mut text = String::new();
    for shown in &list.sandboxes {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{}", shown.line());
    }
    if let Some(next) = &list.next {
        text += &format!("[there are more: continue after {next}]");
    }
    if text.is_empty() {
        text.push_str("[no sandboxes]");
    }
    Ok(Reply::new(text, &list))
}

async fn pause_one(call: Arc<Call>, arguments: OneArguments) -> Result<Reply, ToolError> {
    let (permit, record) = call.existing(arguments.sandbox.as_deref()).await?;
    call.ports.sandboxes.pause(&permit, None, false).await?;
    Ok(changed(&record, "paused"))
}

async fn resume_one(call: Arc<Call>, arguments: ResumeArguments) -> Result<Reply, ToolError> {
    let time = lifetime(arguments.timeout)?;
    let (permit, _) = call.existing(arguments.sandbox.as_deref()).await?;
    let record = call.ports.sandboxes.resume(&permit, time, true).await?;
    let shown = Shown::of(&call, &record);
    Ok(Reply::new(shown.line(), &shown))
}

async fn fork_one(call: Arc<Call>, arguments: ForkArguments) -> Result<Reply, ToolError> {
    let (count, time) = (arguments.count.unwrap_or(1), lifetime(arguments.timeout)?);
    if !(1..=FORKS_MAX).contains(&count) {
        return Err(ToolError::invalid(format_args!(
            "`count`: 1 to {FORKS_MAX}"
        )));
    }
    let (permit, record) = call.existing(arguments.sandbox.as_deref()).await?;
    let principal = &call.caller.principal;
    let made = call
        .ports
        .sandboxes
        .fork(principal, &permit, count, time)
        .await?;
    let mut forks = Forks {
        sandbox: record.id.to_string(),
        forks: Vec::new(),
        errors: Vec::new(),
    };
    for fork in made {
        match fork {
            Ok(Created { record }) => {
                call.target(&record.id);
                forks.forks.push(Shown::of(&call, &record));
            }
            Err(error) => forks.errors.push(ToolError::from(error).message),
        }
    }
    let lines = forks
        .forks
        .iter()
        .map(Shown::line)
        .chain(forks.errors.iter().cloned());
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut reply = Reply::new(text, &forks);
    reply.failed = forks.forks.is_empty();
    Ok(reply)
}

async fn kill_one(call: Arc<Call>, arguments: OneArguments) -> Result<Reply, ToolError> {
    let (permit, record) = call.existing(arguments.sandbox.as_deref()).await?;
    call.ports.sandboxes.kill(&permit).await?;
    call.session.forget(&record.id).await;
    Ok(changed(&record, "killed"))
}

fn changed(record: &SandboxRecord, state: &'static str) -> Reply {
    let changed = Changed {
        sandbox: record.id.to_string(),
        state,
    };
    Reply::new(format!("{} is {state}", changed.sandbox), &changed)
}
