//! MCP servers inside sandboxes: programs that speak the protocol over standard input and output.
//! A session offers their tools as its own, under `SERVER__TOOL`.
//!
//! A program in a sandbox is not trusted. Its messages are bounded, and nothing but responses to
//! requests and a few of its own requests reaches the client here. Its tools count as tools that run
//! anything in the sandbox, whatever it says about them.

mod filter;
mod link;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::ServiceExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, JsonObject, PaginatedRequestParams, Tool,
};
use rmcp::service::{Peer, RoleClient, RoleServer, ServiceError};
use shoal_core::id::SandboxId;
use shoal_core::ports::inside::RunningCommand;
use tokio::io::duplex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::link::Link;
use crate::error::ToolError;
use crate::text::beginning;
use crate::tools::Effect;

/// The most servers of a session.
const SERVERS_MAX: usize = 8;

/// The most tools of a server. Models choose badly among many.
const TOOLS_MAX: usize = 128;

/// The longest name of a tool that agents accept.
const NAME_MAX: usize = 64;

/// The longest description of a tool, in bytes.
const DESCRIPTION_MAX: usize = 4 << 10;

/// The length of all definitions of a server's tools, in bytes. A model reads all of them.
const DEFINITIONS_MAX: usize = 256 << 10;

/// The most pages of a list of tools.
const PAGES_MAX: usize = 8;

/// Between the names of a server and its tool. No server has it in its name.
const SEPARATOR: &str = "__";

/// The bytes on their way between the client and a program.
const PIPE: usize = 64 << 10;

/// How long a server may take to list its tools when they have changed.
const LIST: Duration = Duration::from_secs(10);

/// The servers of a session, by name.
#[derive(Default)]
pub(crate) struct InnerServers(Mutex<BTreeMap<String, Arc<InnerServer>>>);

/// A server inside a sandbox.
pub(crate) struct InnerServer {
    pub(crate) sandbox: SandboxId,
    peer: Peer<RoleClient>,
    link: Arc<Link>,
    stale: Arc<AtomicBool>,
    tools: Mutex<Arc<Offered>>,
    stop: CancellationToken,
}

/// The tools of a server.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    /// Under the names that agents see.
    pub(crate) tools: Vec<Tool>,
    /// The names of those that agents cannot call.
    pub(crate) left_out: Vec<String>,
}

/// A server to start.
pub(crate) struct Start {
    pub(crate) name: String,
    pub(crate) sandbox: SandboxId,
    pub(crate) process: RunningCommand,
    /// How long it may take to introduce itself and its tools.
    pub(crate) patience: Duration,
    /// The agent, which is notified when tools change.
    pub(crate) agent: Peer<RoleServer>,
    /// Cancelled with the session.
    pub(crate) ended: CancellationToken,
}

impl InnerServers {
    /// Checks a name for a new server.
    ///
    /// # Errors
    /// When it is malformed or taken, or the session has too many servers.
    pub(crate) fn check(&self, name: &str) -> Result<(), ToolError> {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 24 || !name.chars().all(good) {
            return Err(ToolError::invalid(
                "`name`: 1 to 24 lower-case letters, digits and `-`",
            ));
        }
        let mut servers = self.0.lock();
        // One that has ended stays, to tell why, until its place is needed.
        let is_full = servers.len() >= SERVERS_MAX;
        servers.retain(|other, server| !server.link.has_ended() || (other != name && !is_full));
        if servers.contains_key(name) {
            return Err(ToolError::refused(
                "exists",
                format_args!(
                    "a server `{name}` runs already: stop it first, or choose another name"
                ),
            ));
        }
        if servers.len() >= SERVERS_MAX {
            return Err(ToolError::refused(
                "limit",
                format_args!("a session has at most {SERVERS_MAX} servers: stop one first"),
            ));
        }
        Ok(())
    }

    /// Connects to a program and offers its tools. The program is killed if that fails.
    ///
    /// # Errors
    /// When it does not speak the protocol, or ends.
    pub(crate) async fn start(&self, start: Start) -> Result<Arc<InnerServer>, ToolError> {
        let Start {
            name,
            sandbox,
            process,
            patience,
            agent,
            ended,
        } = start;
        let stale = Arc::new(AtomicBool::new(false));
        let link = Link::new(on_change(stale.clone(), agent.clone()));
        let (ours, theirs) = duplex(PIPE);
        let stop = ended.child_token();
        let guard = stop.clone().drop_guard();
        let (carried, stopped) = (link.clone(), stop.clone());
        let carry = async move {
            carried.carry(process, theirs, &stopped).await;
            // Its tools are gone.
            let _ = agent.notify_tool_list_changed().await;
        };
        let carrying = tokio::spawn(carry.in_current_span());
        let connect = async {
            let running = ().serve_with_ct(ours, stop.clone()).await;
            let running = running.map_err(|error| error.to_string())?;
            let tools = list(running.peer()).await;
            Ok((running, tools.map_err(|error| error.to_string())?))
        };
        let (running, tools) = match timeout(patience, connect).await {
            Ok(Ok(connected)) => connected,
            failed => {
                let late = || format!("it did not answer within {} s", patience.as_secs());
                let error =
                    failed.map_or_else(|_| late(), |failed| failed.err().unwrap_or_default());
                stop.cancel();
                // Until its last words are known.
                let _ = carrying.await;
                let reason = link.reason(&error);
                return Err(ToolError::refused(
                    "mcp_server",
                    format_args!("`{name}` did not start as an MCP server: {reason}"),
                ));
            }
        };
        let server = Arc::new(InnerServer {
            sandbox,
            peer: running.peer().clone(),
            link,
            stale,
            tools: Mutex::new(Arc::new(offered(&name, tools))),
            stop,
        });
        // It ends with its token.
        tokio::spawn(running.waiting());
        let mut servers = self.0.lock();
        if servers.contains_key(&name) || servers.len() >= SERVERS_MAX {
            drop(servers);
            // Another call was faster.
            return Err(self.check(&name).err().unwrap_or_else(ToolError::cancelled));
        }
        guard.disarm();
        servers.insert(name, server.clone());
        Ok(server)
    }

    /// Stops a server. Returns whether it was there.
    pub(crate) fn stop(&self, name: &str) -> bool {
        let stopped = self.0.lock().remove(name);
        if let Some(server) = &stopped {
            server.stop.cancel();
        }
        stopped.is_some()
    }

    /// The tools of all servers, as they are now.
    pub(crate) async fn tools(&self) -> Vec<Tool> {
        let servers: Vec<(String, Arc<InnerServer>)> = {
            let servers = self.0.lock();
            let copies = servers
                .iter()
                .map(|(name, server)| (name.clone(), server.clone()));
            copies.collect()
        };
        let mut all = Vec::new();
        for (name, server) in servers {
            all.extend(server.offered(&name).await.tools.iter().cloned());
        }
        all
    }

    /// The server of a tool, and the name that the server has for it.
    pub(crate) fn find(&self, tool: &str) -> Option<(Arc<InnerServer>, String)> {
        let (server, inner) = tool.split_once(SEPARATOR)?;
        let server = self.0.lock().get(server)?.clone();
        Some((server, inner.to_owned()))
    }
}

impl InnerServer {
    /// Its tools. Those that have changed are listed again.
    pub(crate) async fn offered(&self, name: &str) -> Arc<Offered> {
        if self.link.has_ended() {
            return Arc::default();
        }
        if self.stale.swap(false, Ordering::AcqRel) {
            match timeout(LIST, list(&self.peer)).await {
                Ok(Ok(tools)) => *self.tools.lock() = Arc::new(offered(name, tools)),
                // The next list tries again.
                _ => self.stale.store(true, Ordering::Release),
            }
        }
        self.tools.lock().clone()
    }

    /// Calls a tool by the server's own name for it.
    ///
    /// # Errors
    /// When the server refuses the call, or has ended.
    pub(crate) async fn call(
        &self,
        tool: String,
        arguments: JsonObject,
    ) -> Result<CallToolResult, ToolError> {
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let called = self.peer.call_tool(params).await;
        called.map_err(|error| match error {
            _ if self.link.has_ended() => ToolError::refused(
                "mcp_server_ended",
                format_args!(
                    "the server has ended: {}\nstart it again with `start_mcp_server`",
                    self.link.reason("it was stopped")
                ),
            ),
            ServiceError::McpError(error) => ToolError::refused(
                "mcp_server",
                format_args!("the server refused: {}", error.message),
            ),
            error => ToolError::refused("mcp_server", error),
        })
    }
}

/// Marks the tools as changed, and tells the agent once until it lists them.
fn on_change(stale: Arc<AtomicBool>, agent: Peer<RoleServer>) -> impl Fn() + Send + Sync {
    move || {
        if stale.swap(true, Ordering::AcqRel) {
            return;
        }
        let agent = agent.clone();
        tokio::spawn(async move {
            // An agent that is gone misses it.
            let _ = agent.notify_tool_list_changed().await;
        });
    }
}

/// The tools that a server lists, on a bounded number of pages.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, ServiceError> {
    let mut tools = Vec::new();
    let mut page = None;
    for _ in 0..PAGES_MAX {
        let listed = peer.list_tools(page).await?;
        tools.extend(listed.tools);
        let Some(cursor) = listed.next_cursor else {
            break;
        };
        page = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
    }
    Ok(tools)
}

/// The tools of a server, as agents see them.
fn offered(server: &str, tools: Vec<Tool>) -> Offered {
    let mut offered = Offered::default();
    let mut room = DEFINITIONS_MAX;
    for tool in tools {
        let name = format!("{server}{SEPARATOR}{}", tool.name);
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let fits = name.len() <= NAME_MAX && name.chars().all(good) && !tool.name.is_empty();
        let twice = offered.tools.iter().any(|other| other.name == name);
        if !fits || twice || offered.tools.len() == TOOLS_MAX {
            offered
                .left_out
                .push(beginning(&tool.name, NAME_MAX).to_owned());
            continue;
        }
        let description = tool.description.unwrap_or_default();
        let mut outer = Tool::new(
            name,
            beginning(&description, DESCRIPTION_MAX).to_owned(),
            tool.input_schema,
        )
        // The program knows best, and is not to be trusted.
        .with_annotations(Effect::Runs.hints());
        outer.title = tool
            .title
            .map(|title| beginning(&title, NAME_MAX).to_owned());
        outer.output_schema = tool.output_schema;
        let bytes = serde_json::to_vec(&outer).map_or(usize::MAX, |json| json.len());
        match room.checked_sub(bytes) {
            Some(left) => room = left,
            None => {
                let name = beginning(&tool.name, NAME_MAX).to_owned();
                offered.left_out.push(name);
                continue;
            }
        }
        offered.tools.push(outer);
    }
    offered.left_out.truncate(TOOLS_MAX);
    offered
}

#[cfg(test)]
mod tests;
