//! A routing table that records wakes in the audit log.

use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::audit::{AuditEvent, AuditLog, AuditResult, AuditSource};
use shoal_core::auth::Token;
use shoal_core::clock::Clock;
use shoal_core::id::{KeyId, SandboxId};
use shoal_core::routes::{
    Authorized, Credential, Lookup, NotAuthorized, NotResumed, OpenConnection, Route, RouteTable,
    Visit,
};
use shoal_engine::SystemClock;

/// Delegates everything, and records each wake by traffic.
pub(crate) struct AuditedRoutes {
    inner: Arc<dyn RouteTable>,
    log: Arc<dyn AuditLog>,
}

impl AuditedRoutes {
    pub(crate) fn new(inner: Arc<dyn RouteTable>, log: Arc<dyn AuditLog>) -> Self {
        Self { inner, log }
    }
}

impl RouteTable for AuditedRoutes {
    fn lookup(&self, id: &SandboxId) -> Lookup {
        self.inner.lookup(id)
    }

    fn visit(&self, route: &Route) -> Option<Visit> {
        self.inner.visit(route)
    }

    fn open_connection(&self, route: &Route) -> Option<OpenConnection> {
        self.inner.open_connection(route)
    }

    fn disconnected(&self, route: &Route) -> BoxFuture<'static, ()> {
        self.inner.disconnected(route)
    }

    fn wake(&self, id: &SandboxId) -> BoxFuture<'static, Result<Arc<Route>, NotResumed>> {
        let (woken, log, id) = (self.inner.wake(id), self.log.clone(), id.clone());
        Box::pin(async move {
            let woken = woken.await;
            let result = match &woken {
                Ok(_) => AuditResult::Ok,
                Err(NotResumed::Gone | NotResumed::Full(_)) => AuditResult::Refused,
                Err(NotResumed::Failed(_)) => AuditResult::Failed,
            };
            let event = AuditEvent::new(SystemClock.now(), "sandbox.wake", result);
            log.record(AuditSource::Gateway, event.on(id.as_str()));
            woken
        })
    }

    fn admit(
        &self,
        name: &str,
        credential: Credential,
    ) -> BoxFuture<'static, Result<Authorized, NotAuthorized>> {
        self.inner.admit(name, credential)
    }

    fn key_deleted(&self, key: KeyId) -> BoxFuture<'static, ()> {
        self.inner.key_deleted(key)
    }

    fn find_by_token(&self, is_wanted: &dyn Fn(&Token) -> bool) -> Option<SandboxId> {
        self.inner.find_by_token(is_wanted)
    }

    fn ended(&self, route: &Route) -> BoxFuture<'static, ()> {
        self.inner.ended(route)
    }
}
