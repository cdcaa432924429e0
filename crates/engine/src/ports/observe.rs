//! Logs, metrics, events, use, and pools.

use std::future::ready;

use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::clock::Timestamp;
use shoal_core::id::SandboxId;
use shoal_core::ports::observe::{
    LogEntry, LogQuery, Sample, SandboxEvent, SandboxEvents, Scope, SeenStream, SubscribeError,
    TeamSample, Telemetry, Use,
};
use shoal_core::ports::pools::{MemberView, PoolSample, PoolView, Pools};
use shoal_core::ports::sandboxes::SandboxError;

use crate::engine::Engine;

impl Telemetry for Engine {
    fn logs<'a>(
        &'a self,
        principal: &'a Principal,
        sandbox: &'a SandboxId,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, SandboxError>> {
        Box::pin(Engine::logs(self, principal, sandbox, query))
    }

    fn metrics<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> BoxFuture<'a, Vec<Sample>> {
        Box::pin(ready(Engine::metrics(self, permit, start, end)))
    }

    fn events<'a>(
        &'a self,
        principal: &'a Principal,
        sandbox: Option<&'a SandboxId>,
        limit: usize,
    ) -> BoxFuture<'a, Vec<SandboxEvent>> {
        Box::pin(ready(Engine::events(self, principal, sandbox, limit)))
    }

    fn team_metrics<'a>(
        &'a self,
        principal: &'a Principal,
        start: Timestamp,
        end: Timestamp,
    ) -> BoxFuture<'a, Vec<TeamSample>> {
        Box::pin(ready(Engine::team_metrics(self, principal, start, end)))
    }

    fn usage<'a>(&'a self, principal: &'a Principal) -> BoxFuture<'a, Use> {
        Box::pin(ready(Engine::usage(self, principal)))
    }

    fn usage_of_all<'a>(&'a self, principal: &'a Principal) -> BoxFuture<'a, Option<Use>> {
        Box::pin(ready(Engine::usage_of_all(self, principal)))
    }
}

impl SandboxEvents for Engine {
    fn subscribe(&self, principal: &Principal, scope: Scope) -> Result<SeenStream, SubscribeError> {
        Engine::visible_events(self, principal, scope)
    }
}

impl Pools for Engine {
    fn list(&self) -> BoxFuture<'_, Vec<PoolView>> {
        Box::pin(ready(Engine::pools(self)))
    }

    fn members<'a>(&'a self, template: &'a str) -> BoxFuture<'a, Option<Vec<MemberView>>> {
        Box::pin(ready(Engine::pool_members(self, template)))
    }

    fn history<'a>(&'a self, template: &'a str) -> BoxFuture<'a, Option<Vec<PoolSample>>> {
        Box::pin(ready(Engine::pool_history(self, template)))
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<usize>> {
        Box::pin(ready(Engine::remove_from_pool(self, name)))
    }
}
