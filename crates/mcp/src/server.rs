//! The requests of one session, as rmcp hands them over.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, InitializeRequestParams, InitializeResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData as McpError, ServerHandler};
use serde_json::json;
use shoal_core::audit::AuditResult;
use shoal_core::ports::Ports;

use crate::audit::Audited;
use crate::caller::Caller;
use crate::config::McpConfig;
use crate::error::ToolError;
use crate::resources;
use crate::session::Session;
use crate::tools::{self, Call, Reply};

/// The description of the server for the model.
const INSTRUCTIONS: &str = "\
Sandboxes: isolated Linux machines in which you run commands and code, and keep files. This session has a sandbox of its \
own. It is created when a tool first needs it, and ends with the session, with everything in it. Tools act on it unless \
you name another sandbox of your team with `sandbox`. Long outputs are cut in the middle: write them to a file and read \
parts of it. `snapshot` saves a sandbox, and `restore` starts another from it.";

/// The key of a failure in a result's `_meta`, for programs.
const ERROR: &str = "shoal.dev/error";

/// A call of a tool of a server in a sandbox, in the audit log.
const INNER_ACTION: &str = "mcp.tool";

/// Shared by all sessions.
pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) config: McpConfig,
}

/// The server of one session.
pub(crate) struct Server {
    shared: Arc<Shared>,
    /// None until the client has initialized it.
    session: OnceLock<Arc<Session>>,
}

impl Server {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            session: OnceLock::new(),
        }
    }

    /// The context of a request: its session, and who sent it.
    fn call(&self, context: &RequestContext<RoleServer>) -> Result<Call, McpError> {
        let none = || {
            McpError::invalid_request(
                "this server has a session for each client: send `initialize` first, with a \
                 protocol version up to 2025-11-25",
                None,
            )
        };
        let session = self.session.get().ok_or_else(none)?;
        let parts = context.extensions.get::<Parts>().ok_or_else(none)?;
        let caller = parts.extensions.get::<Caller>().ok_or_else(none)?;
        Ok(Call {
            ports: self.shared.ports.clone(),
            domain: self.shared.config.domain.clone(),
            session: session.clone(),
            caller: caller.clone(),
            peer: context.peer.clone(),
            progress: context.meta.get_progress_token(),
            cancelled: context.ct.clone(),
            targets: parking_lot::Mutex::default(),
        })
    }

    /// Runs a call of a tool, while the session is not idle, and records it in the audit log.
    async fn record(
        &self,
        call: &Call,
        action: Option<&'static str>,
        run: impl Future<Output = Result<CallToolResult, ToolError>>,
    ) -> CallToolResult {
        let busy = call.session.begin();
        let audited = action.map(|action| Audited {
            action,
            begun: Instant::now(),
        });
        let outcome = run.await;
        drop(busy);
        if let Some(audited) = audited {
            let result = outcome
                .as_ref()
                .map_or_else(|error| error.result, |_| AuditResult::Ok);
            let shared = &self.shared;
            let clock = shared.ports.clock.as_ref();
            let targets = call.targets.lock().clone();
            audited.record(&shared.config, clock, &call.caller, result, &targets);
        }
        outcome.unwrap_or_else(failure)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(session) = self.session.get() {
            session.ended().cancel();
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("shoal", env!("CARGO_PKG_VERSION")).with_title("Shoal"),
            )
            .with_instructions(INSTRUCTIONS)
    }

    /// Later revisions have no sessions, so nothing would end a sandbox.
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, McpError> {
        context.peer.set_peer_info(request.clone());
        let parts = context.extensions.get::<Parts>();
        if let Some(session) = parts.and_then(|parts| parts.extensions.get::<Arc<Session>>()) {
            // A second `initialize` changes nothing.
            let _ = self.session.set(session.clone());
        }
        self.negotiate_initialize(&request)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, McpError> {
        let tools = tools::all().iter().map(|spec| spec.tool.clone());
        let mut tools: Vec<Tool> = tools.collect();
        if let Some(session) = self.session.get() {
            tools.extend(session.servers().tools().await);
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(name).map(|spec| spec.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, McpError> {
        let arguments = request.arguments.unwrap_or_default();
        if let Some(spec) = tools::find(&request.name) {
            let call = Arc::new(self.call(&context)?);
            let run = (spec.run)(call.clone(), arguments);
            let run = async { run.await.map(Reply::into_result) };
            return Ok(self.record(&call, spec.action, run).await.into());
        }
        let inner = self.session.get();
        let inner = inner.and_then(|session| session.servers().find(&request.name));
        let Some((server, tool)) = inner else {
            let message = format!("Unknown tool: {}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let call = self.call(&context)?;
        let run = tools::call_inner(&call, &server, tool, arguments);
        Ok(self.record(&call, Some(INNER_ACTION), run).await.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, McpError> {
        let call = self.call(&context)?;
        Ok(ListResourcesResult::with_all_items(
            resources::list(&call).await,
        ))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, McpError> {
        Ok(ListResourceTemplatesResult::with_all_items(
            resources::templates(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, McpError> {
        let call = self.call(&context)?;
        let _busy = call.session.begin();
        Ok(resources::read(&call, &request.uri).await?.into())
    }
}

/// The answer to a call of a tool that failed. The model reads it, so it is a result.
fn failure(error: ToolError) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(&error.message)]);
    // Not as structured content: clients compare that with the tool's schema, in errors too.
    let about = json!({"code": error.code, "message": error.message});
    let mut meta = MetaObject::new();
    meta.insert(ERROR.to_owned(), about);
    result.meta = Some(meta);
    result
}
