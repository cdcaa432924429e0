//! Records calls of tools in the audit log. The API layer records the requests that carry them only when they are denied.

use std::time::Instant;

use shoal_core::audit::{AuditEvent, AuditResult, AuditSource};
use shoal_core::clock::Clock;

use crate::caller::Caller;
use crate::config::McpConfig;

/// The route in events.
const ROUTE: &str = "POST /mcp";

/// A call that changes something.
pub(crate) struct Audited {
    pub(crate) action: &'static str,
    pub(crate) begun: Instant,
}

impl Audited {
    /// Records how it ended.
    pub(crate) fn record(
        self,
        config: &McpConfig,
        clock: &dyn Clock,
        caller: &Caller,
        result: AuditResult,
        targets: &[String],
    ) {
        let mut event = AuditEvent::new(clock.now(), self.action, result);
        for target in targets {
            event = event.on(target);
        }
        event.team = Some(caller.principal.slug.clone());
        event.key = Some(caller.principal.key);
        event.address = caller.address;
        event.route = Some(ROUTE.to_owned());
        event.request.clone_from(&caller.request);
        event.duration_ms = Some(self.begun.elapsed());
        let source = AuditSource::Team(caller.principal.slug.clone());
        config.audit.record(source, event);
    }
}
