//! The configuration of the MCP server.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::audit::AuditLog;
use shoal_core::template::TemplateKey;
use tokio_util::sync::CancellationToken;

/// The configuration of the MCP server.
#[derive(Clone)]
pub struct McpConfig {
    /// The domain of sandboxes' host names, with its port; none without TLS.
    pub domain: Option<String>,
    /// The template of sessions' sandboxes; the installation's default if absent.
    pub template: Option<TemplateKey>,
    /// How long a session lives without a request. Its sandbox ends with it.
    pub idle: Duration,
    /// The most sessions of a team.
    pub sessions_per_team: usize,
    /// Origins of web pages that may call, beside those of this machine: `https://HOST[:PORT]`.
    pub origins: Vec<String>,
    /// The audit log.
    pub audit: Arc<dyn AuditLog>,
    /// Cancelled when the server stops, which ends all sessions.
    pub stopping: CancellationToken,
}
