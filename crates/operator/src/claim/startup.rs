//! How long claims take to become ready, counted once for each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_crds::parts::SandboxClaimStatus;

use super::status;

/// The claims that this replica has seen, by UID.
#[derive(Default)]
pub(crate) struct Startups(Mutex<HashMap<String, Startup>>);

#[derive(Clone, Copy)]
enum Startup {
    /// First seen then, and not ready since.
    Since(Instant),
    /// Counted, by this replica or by the one before.
    Counted,
}

impl Startups {
    /// Notes the status with which a reconcile begins. A claim that has a sandbox when it is first seen was
    /// served by another replica, which counted it.
    pub(super) fn see(&self, uid: &str, status: &SandboxClaimStatus) {
        let mut startups = self.0.lock();
        if !startups.contains_key(uid) {
            let startup = if status.sandbox.name.is_empty() {
                Startup::Since(Instant::now())
            } else {
                Startup::Counted
            };
            startups.insert(uid.to_owned(), startup);
        }
    }

    /// How long the claim took, when it becomes ready for the first time.
    pub(super) fn ready(
        &self,
        uid: &str,
        before: &SandboxClaimStatus,
        after: &SandboxClaimStatus,
    ) -> Option<Duration> {
        if status::is_ready(before) || !status::is_ready(after) {
            return None;
        }
        match self.0.lock().insert(uid.to_owned(), Startup::Counted)? {
            Startup::Since(since) => Some(since.elapsed()),
            Startup::Counted => None,
        }
    }

    /// Forgets a deleted claim.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(sandbox: &str, ready: &str) -> SandboxClaimStatus {
        serde_json::from_value(json!({
            "sandbox": {"name": sandbox},
            "conditions": [{"type": "Ready", "status": ready, "reason": "r", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }))
        .unwrap()
    }

    #[test]
    fn a_claim_that_becomes_ready_again_is_not_counted_again() {
        let startups = Startups::default();
        let (none, waits, ready) = (
            SandboxClaimStatus::default(),
            status("s", "False"),
            status("s", "True"),
        );
        startups.see("a", &none);
        startups.see("a", &waits);
        assert!(startups.ready("a", &none, &waits).is_none());
        assert!(startups.ready("a", &waits, &ready).is_some());
        startups.see("a", &waits);
        assert!(startups.ready("a", &waits, &ready).is_none());
        startups.forget("a");
        startups.see("a", &none);
        assert!(startups.ready("a", &none, &ready).is_some());
    }

    #[test]
    fn a_claim_that_another_replica_has_served_is_not_counted() {
        let startups = Startups::default();
        startups.see("a", &status("s", "False"));
        let again = startups.ready("a", &status("s", "False"), &status("s", "True"));
        assert!(again.is_none());
    }
}
