//! The tools: their descriptions, and how they are called.

mod code;
mod command;
mod files;
mod listing;
mod port;
mod sandboxes;
mod search;
mod servers;
mod snapshots;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::{
    CallToolResult, ContentBlock, JsonObject, ProgressNotificationParam, ProgressToken, Tool,
    ToolAnnotations,
};
use rmcp::service::{Peer, RoleServer};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shoal_core::BoxFuture;
use shoal_core::ports::Ports;
use shoal_core::ports::inside::SandboxClient;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::error::ToolError;
use crate::inner::InnerServer;
use crate::session::{Held, Session};

pub(crate) use self::files::whole;

/// How long the session's sandbox lives at least when a tool of a server inside is called.
const INNER_CALL: Duration = Duration::from_secs(command::SECONDS_MAX);

/// One call of a tool, or a read of a resource.
pub(crate) struct Call {
    pub(crate) ports: Ports,
    pub(crate) domain: Option<String>,
    pub(crate) session: Arc<Session>,
    pub(crate) caller: Caller,
    pub(crate) peer: Peer<RoleServer>,
    pub(crate) progress: Option<ProgressToken>,
    pub(crate) cancelled: CancellationToken,
    /// The ids of what it acted on, for the audit log.
    pub(crate) targets: Mutex<Vec<String>>,
}

impl Call {
    /// The sandbox that is named, or that of the session, which is created if it has none.
    pub(crate) async fn sandbox(
        &self,
        named: Option<&str>,
        needed: Duration,
    ) -> Result<Held, ToolError> {
        let held = match named {
            Some(name) => self.named(name).await?,
            None => tokio::select! {
                held = self.session.sandbox(&self.ports, needed) => held?,
                () = self.cancelled() => return Err(ToolError::cancelled()),
            },
        };
        self.target(&held.1.id);
        Ok(held)
    }

    /// The sandbox that is named, or that of the session if it has one.
    pub(crate) async fn existing(&self, named: Option<&str>) -> Result<Held, ToolError> {
        let held = match named {
            Some(name) => self.named(name).await?,
            None => self.session.existing(&self.ports).await?,
        };
        self.target(&held.1.id);
        Ok(held)
    }

    /// The sandbox of the caller's team with this id or name.
    pub(crate) async fn named(&self, name: &str) -> Result<Held, ToolError> {
        let principal = &self.caller.principal;
        Ok(self.ports.sandboxes.find(principal, name).await?)
    }

    /// The same, opened for commands and files.
    pub(crate) async fn inside(
        &self,
        named: Option<&str>,
        user: Option<&str>,
        needed: Duration,
    ) -> Result<(Held, Arc<dyn SandboxClient>), ToolError> {
        let held = self.sandbox(named, needed).await?;
        let client = self.ports.access.open(&held.0, user).await?;
        Ok((held, client))
    }

    /// Notes what the call acted on.
    pub(crate) fn target(&self, target: impl ToString) {
        self.targets.lock().push(target.to_string());
    }

    /// Resolves when the client cancels the call, or the session ends.
    pub(crate) async fn cancelled(&self) {
        tokio::select! {
            () = self.cancelled.cancelled() => {}
            () = self.session.ended().cancelled() => {}
        }
    }

    /// Tells the client how far the call is, if it wants to know.
    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    pub(crate) async fn tell(&self, done: usize, message: &str) {
        let Some(token) = self.progress.clone() else {
            return;
        };
        let progress = ProgressNotificationParam::new(token, done as f64).with_message(message);
        // A client that is gone misses it.
        let _ = self.peer.notify_progress(progress).await;
    }
}

/// The answer of a tool.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) content: Vec<ContentBlock>,
    pub(crate) structured: Value,
    /// Whether it is an error to the model.
    pub(crate) failed: bool,
}

impl Reply {
    /// A text for the model, and the same for programs.
    pub(crate) fn new(text: impl Into<String>, structured: &impl Serialize) -> Self {
        Self {
            content: vec![ContentBlock::text(text)],
            // Structs of texts and numbers always serialize.
            structured: serde_json::to_value(structured).unwrap_or_default(),
            failed: false,
        }
    }

    /// The answer on the wire.
    pub(crate) fn into_result(self) -> CallToolResult {
        let mut result = CallToolResult::success(self.content);
        result.structured_content = Some(self.structured);
        result.is_error = Some(self.failed);
        result
    }
}

/// Calls a tool of a server in a sandbox.
pub(crate) async fn call_inner(
    call: &Call,
    server: &InnerServer,
    tool: String,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let id = server.sandbox.as_str();
    if call.session.has().as_ref() == Some(&server.sandbox) {
        call.sandbox(None, INNER_CALL).await?;
    } else {
        call.existing(Some(id)).await?;
    }
    tokio::select! {
        result = server.call(tool, arguments) => result,
        () = call.cancelled() => Err(ToolError::cancelled()),
    }
}

type Run = Box<
    dyn Fn(Arc<Call>, JsonObject) -> BoxFuture<'static, Result<Reply, ToolError>> + Send + Sync,
>;

/// A tool.
pub(crate) struct Spec {
    pub(crate) tool: Tool,
    /// Its name in the audit log, if it changes something or reads data of a sandbox.
    pub(crate) action: Option<&'static str>,
    pub(crate) run: Run,
}

/// The side effects of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// It only reads.
    Reads,
    /// It adds something.
    Adds,
    /// It may remove or overwrite something.
    Changes,
    /// The same, and a second call changes nothing more.
    Sets,
    /// It does what the caller says, in the sandbox and on the internet.
    Runs,
}

impl Effect {
    pub(crate) fn hints(self) -> ToolAnnotations {
        let (reads, destroys, idempotent, open) = match self {
            Self::Reads => (true, false, true, false),
            Self::Adds => (false, false, false, false),
            Self::Changes => (false, true, false, false),
            Self::Sets => (false, true, true, false),
            Self::Runs => (false, true, false, true),
        };
        ToolAnnotations::new()
            .read_only(reads)
            .destructive(destroys)
            .idempotent(idempotent)
            .open_world(open)
    }
}

/// A name, a title and a description of a tool.
struct About(&'static str, &'static str, &'static str);

/// A tool that takes `A` and answers `O`.
fn spec<A, O, F>(
    about: &About,
    effect: Effect,
    action: Option<&'static str>,
    run: impl Fn(Arc<Call>, A) -> F + Send + Sync + Copy + 'static,
) -> Spec
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    O: JsonSchema + 'static,
    F: Future<Output = Result<Reply, ToolError>> + Send + 'static,
{
    let &About(name, title, description) = about;
    // Arguments are structs, whose schemas are of objects: a test makes all of them.
    let input = schema_for_input::<A>().unwrap_or_default();
    let tool = Tool::new(name, description, input)
        .with_title(title)
        .with_raw_output_schema(schema_for_output::<O>())
        .with_annotations(effect.hints());
    let run: Run = Box::new(move |call, arguments| {
        let arguments = serde_json::from_value(Value::Object(arguments));
        Box::pin(async move {
            let arguments = arguments.map_err(ToolError::invalid)?;
            run(call, arguments).await
        })
    });
    Spec { tool, action, run }
}

/// All tools.
pub(crate) fn all() -> &'static [Spec] {
    static ALL: LazyLock<Vec<Spec>> = LazyLock::new(|| {
        let mut all = vec![command::run_command(), code::run_code()];
        all.extend(files::tools());
        all.extend([listing::list_files(), search::search_files()]);
        all.push(port::expose_port());
        all.extend(sandboxes::tools());
        all.extend(snapshots::tools());
        all.extend(servers::tools());
        all
    });
    &ALL
}

/// The tool with this name.
pub(crate) fn find(name: &str) -> Option<&'static Spec> {
    all().iter().find(|spec| spec.tool.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_schemas_of_objects_and_says_what_it_does() {
        let names: Vec<&str> = all().iter().map(|spec| &*spec.tool.name).collect();
        assert_eq!(
            names,
            [
                "run_command",
                "run_code",
                "read_file",
                "write_file",
                "edit_file",
                "list_files",
                "search_files",
                "expose_port",
                "create_sandbox",
                "list_sandboxes",
                "pause_sandbox",
                "resume_sandbox",
                "fork_sandbox",
                "kill_sandbox",
                "snapshot",
                "restore",
                "start_mcp_server",
                "stop_mcp_server",
            ]
        );
        for spec in all() {
            let tool = &spec.tool;
            let name = &tool.name;
            assert_eq!(tool.input_schema["type"], "object", "{name}");
            let output = tool.output_schema.as_ref().unwrap();
            assert_eq!(output["type"], "object", "{name}");
            let hints = tool.annotations.as_ref().unwrap();
            let reads = hints.read_only_hint.unwrap();
            assert!(!(reads && hints.destructive_hint.unwrap()), "{name}");
            assert!(spec.action.is_some() || reads, "{name} is not audited");
        }
    }

    #[test]
    fn every_argument_is_described() {
        for spec in all() {
            let empty = serde_json::Map::new();
            let properties = spec.tool.input_schema.get("properties");
            let properties = properties.and_then(Value::as_object).unwrap_or(&empty);
            for (name, schema) in properties {
                assert!(
                    schema["description"].is_string(),
                    "{} {name}",
                    spec.tool.name
                );
            }
        }
    }
}
