//! `start_mcp_server` and `stop_mcp_server`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shoal_core::ports::inside::{SandboxCommand, run_line};

use super::command::{check_command, seconds};
use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;
use crate::inner::Start;

/// The default time to start, in seconds: programs like `npx` download first.
const SECONDS: u64 = 60;

/// Arguments of `start_mcp_server`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StartArguments {
    /// A name of your choice: its tools are called `NAME__TOOL`. Lower-case letters, digits and `-`.
    name: String,
    /// The command line that starts it: `npx -y @modelcontextprotocol/server-filesystem .`.
    command: String,
    /// The working directory; the sandbox's default when absent.
    cwd: Option<String>,
    /// Environment variables, over those of the sandbox.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The user that runs it; the sandbox's default user when absent.
    user: Option<String>,
    /// Seconds until it must have answered: 60 when absent, at most 3600.
    timeout: Option<u64>,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// A server that runs.
#[derive(Debug, Serialize, JsonSchema)]
struct Started {
    /// The sandbox in which it runs.
    sandbox: String,
    /// Its name.
    name: String,
    /// The names of its tools in this session.
    tools: Vec<String>,
    /// The names of tools that agents cannot call: too long, with other characters, or too many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

/// Arguments of `stop_mcp_server`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StopArguments {
    /// The name that it was started with.
    name: String,
}

/// A server that was stopped.
#[derive(Debug, Serialize, JsonSchema)]
struct Stopped {
    /// Its name.
    name: String,
}

pub(super) fn tools() -> [Spec; 2] {
    let start_about = About(
        "start_mcp_server",
        "Start an MCP server",
        "Starts a program in the sandbox that is an MCP server over standard input and output, and adds its tools to \
         those of this session, as `NAME__TOOL`. It ends with the session, with the sandbox, or with `stop_mcp_server`.",
    );
    let stop_about = About(
        "stop_mcp_server",
        "Stop an MCP server",
        "Stops a server that `start_mcp_server` has started. Its tools go away.",
    );
    [
        spec::<_, Started, _>(&start_about, Effect::Runs, Some("mcp.start"), start),
        spec::<_, Stopped, _>(&stop_about, Effect::Changes, Some("mcp.stop"), stop),
    ]
}

async fn start(call: Arc<Call>, arguments: StartArguments) -> Result<Reply, ToolError> {
    let patience = Duration::from_secs(seconds(arguments.timeout, SECONDS)?);
    let cwd = arguments.cwd.as_deref();
    check_command(&arguments.command, cwd, &arguments.env)?;
    let servers = call.session.servers();
    servers.check(&arguments.name)?;
    let user = arguments.user.as_deref().filter(|user| !user.is_empty());
    let (held, client) = call
        .inside(arguments.sandbox.as_deref(), user, patience)
        .await?;
    let command = SandboxCommand {
        cwd: arguments.cwd,
        env: arguments.env,
        stdin: true,
        ..SandboxCommand::default()
    };
    let process = run_line(&*client, &arguments.command, command).await?;
    let start = Start {
        name: arguments.name.clone(),
        sandbox: held.1.id.clone(),
        process,
        patience,
        agent: call.peer.clone(),
        ended: call.session.ended().clone(),
    };
    let server = tokio::select! {
        server = servers.start(start) => server?,
        () = call.cancelled() => return Err(ToolError::cancelled()),
    };
    let offered = server.offered(&arguments.name).await;
    let started = Started {
        sandbox: held.1.id.to_string(),
        name: arguments.name,
        tools: offered
            .tools
            .iter()
            .map(|tool| tool.name.to_string())
            .collect(),
        left_out: offered.left_out.clone(),
    };
    // An agent that is gone misses it.
    let _ = call.peer.notify_tool_list_changed().await;
    let mut text = match started.tools.as_slice() {
        [] => "it runs, and has no tools".to_owned(),
        tools => format!("it runs; its tools: {}", tools.join(", ")),
    };
    if !started.left_out.is_empty() {
        text += &format!("; left out: {}", started.left_out.join(", "));
    }
    Ok(Reply::new(text, &started))
}

async fn stop(call: Arc<Call>, arguments: StopArguments) -> Result<Reply, ToolError> {
    if !call.session.servers().stop(&arguments.name) {
        return Err(ToolError::refused(
            "not_found",
            format_args!("this session has no server `{}`", arguments.name),
        ));
    }
    let _ = call.peer.notify_tool_list_changed().await;
    let stopped = Stopped {
        name: arguments.name,
    };
    Ok(Reply::new("stopped", &stopped))
}
