//! The configuration of the API and of the MCP server.

use std::sync::Arc;

use shoal_api::{ApiConfig, InFlight, RateLimit};
use shoal_core::audit::AuditLog;
use shoal_core::ports::Ports;
use shoal_mcp::{Mcp, McpConfig};
use tokio_util::sync::CancellationToken;

use crate::announce;
use crate::config::Config;

/// The MCP server of a backend, unless it is switched off.
pub(crate) fn mcp(
    config: &Config,
    ports: Ports,
    audit: Arc<dyn AuditLog>,
    stopping: &CancellationToken,
) -> Option<Mcp> {
    let settings = config.mcp.enabled.then(|| config.mcp.clone())?;
    let config = McpConfig {
        domain: announce::public_domain(config),
        template: settings.template,
        idle: settings.idle,
        sessions_per_team: settings.sessions_per_team,
        origins: settings.origins,
        audit,
        stopping: stopping.clone(),
    };
    Some(Mcp::new(ports, config))
}

/// The configuration of the API.
pub(crate) fn config(
    config: &Config,
    calls: usize,
    audit: Arc<dyn AuditLog>,
    stopping: CancellationToken,
    mcp: Option<Mcp>,
) -> ApiConfig {
    ApiConfig {
        domain: announce::public_domain(config),
        rate_limit: config.limits.rate.calls.map(|calls| RateLimit {
            calls,
            per: config.limits.rate.per,
        }),
        in_flight: InFlight {
            calls,
            ..InFlight::default()
        },
        audit,
        stopping,
        mcp,
    }
}

/// Waits until the MCP sessions have ended, with their sandboxes, and then for other work.
pub(crate) async fn drained(mcp: Option<Mcp>, work: impl Future<Output = ()>) {
    if let Some(mcp) = mcp {
        mcp.drained().await;
    }
    work.await;
}
