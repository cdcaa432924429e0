//! The configuration of the API.

use std::sync::Arc;

use shoal_core::audit::{AuditLog, NoAudit};
use shoal_mcp::Mcp;
use tokio_util::sync::CancellationToken;

use crate::in_flight::InFlight;
use crate::rate::RateLimit;

/// The configuration of the API.
#[derive(Clone)]
pub struct ApiConfig {
    /// The domain of sandboxes' host names in responses; by default clients use the one in their
    /// own configuration.
    pub domain: Option<String>,
    /// The rate limit per team and route; none by default.
    pub rate_limit: Option<RateLimit>,
    /// The limits on concurrent calls and their bodies.
    pub in_flight: InFlight,
    /// The audit log.
    pub audit: Arc<dyn AuditLog>,
    /// Cancelled when the server stops: streams of events end then.
    pub stopping: CancellationToken,
    /// The service at `/mcp`; none by default.
    pub mcp: Option<Mcp>,
}

impl Default for ApiConfig {
    /// No domain, no rate limit, no audit log, no MCP.
    fn default() -> Self {
        Self {
            domain: None,
            rate_limit: None,
            in_flight: InFlight::default(),
            audit: Arc::new(NoAudit),
            stopping: CancellationToken::new(),
            mcp: None,
        }
    }
}
