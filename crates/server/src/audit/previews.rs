//! Previews that record the starts of machines in the audit log.

use std::sync::Arc;

use shoal_core::audit::{AuditEvent, AuditLog, AuditResult, AuditSource};
use shoal_core::clock::Clock;
use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::preview::{Preview, Previews, Waking};
use shoal_core::session::preview::PreviewHash;
use shoal_engine::SystemClock;

/// Delegates everything, and records each start by a request. The hash is a secret: the event has the id of the session.
pub(crate) struct AuditedPreviews {
    inner: Arc<dyn Previews>,
    log: Arc<dyn AuditLog>,
}

impl AuditedPreviews {
    pub(crate) fn new(inner: Arc<dyn Previews>, log: Arc<dyn AuditLog>) -> Self {
        Self { inner, log }
    }
}

impl Previews for AuditedPreviews {
    fn find(&self, hash: &PreviewHash) -> Option<Preview> {
        self.inner.find(hash)
    }

    fn wake(&self, hash: &PreviewHash) -> Waking {
        let waking = self.inner.wake(hash);
        if let Waking::Begun(session) = &waking {
            let event = AuditEvent::new(SystemClock.now(), "session.wake", AuditResult::Ok);
            self.log
                .record(AuditSource::Gateway, event.on(session.as_str()));
        }
        waking
    }

    fn is_machine(&self, sandbox: &SandboxId) -> bool {
        self.inner.is_machine(sandbox)
    }
}
