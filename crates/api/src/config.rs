//! How the API answers.

use std::sync::Arc;

use shoal_core::audit::{AuditLog, NoAudit};

use crate::in_flight::InFlight;
use crate::rate::RateLimit;

/// How the API answers.
#[derive(Clone)]
pub struct ApiConfig {
    /// The domain of sandboxes' hosts, which answers name; without it clients use the one that they were
    /// configured with.
    pub domain: Option<String>,
    /// How often a team may call a route; without a limit when absent.
    pub rate_limit: Option<RateLimit>,
    /// The most calls at once, and the memory for their bodies.
    pub in_flight: InFlight,
    /// The audit log.
    pub audit: Arc<dyn AuditLog>,
}

impl Default for ApiConfig {
    /// Without a domain, a limit or an audit log.
    fn default() -> Self {
        Self {
            domain: None,
            rate_limit: None,
            in_flight: InFlight::default(),
            audit: Arc::new(NoAudit),
        }
    }
}
