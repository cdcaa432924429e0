//! Sandboxes.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::SandboxId;
use shoal_core::network::{Egress, InvalidRule};
use shoal_core::ports::create::{CreateError, Created, Idempotency, SandboxRequest};
use shoal_core::ports::list::{ListFilter, Page};
use shoal_core::ports::sandboxes::{Connected, Resize, SandboxError, Sandboxes};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::Contents;

use crate::engine::Engine;

impl Sandboxes for Engine {
    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: SandboxRequest,
        idempotency: Option<Idempotency>,
    ) -> BoxFuture<'a, Result<Created, CreateError>> {
        Box::pin(Engine::create(self, principal, new, idempotency))
    }

    fn authorize<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>> {
        Box::pin(ready(Engine::authorize(self, principal, id)))
    }

    fn find<'a>(
        &'a self,
        principal: &'a Principal,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>> {
        Box::pin(ready(Engine::find(self, principal, text)))
    }

    fn list<'a>(&'a self, principal: &'a Principal, filter: &'a ListFilter) -> BoxFuture<'a, Page> {
        Box::pin(ready(Engine::list(self, principal, filter)))
    }

    fn kill<'a>(&'a self, permit: &'a SandboxPermit) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(Engine::kill(self, permit))
    }

    fn connect<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> BoxFuture<'a, Result<Connected, SandboxError>> {
        Box::pin(Engine::connect(self, permit, timeout, memory))
    }

    fn pause<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        contents: Option<Contents>,
        healthy: bool,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(Engine::pause(self, permit, contents, healthy))
    }

    fn resume<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(Engine::resume(self, permit, timeout, memory))
    }

    fn fork<'a>(
        &'a self,
        principal: &'a Principal,
        permit: &'a SandboxPermit,
        count: usize,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<Created, CreateError>>, SandboxError>> {
        Box::pin(Engine::fork(self, principal, permit, count, timeout))
    }

    fn set_timeout<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(Engine::set_timeout(self, permit, timeout))
    }

    fn refresh<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        duration: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(Engine::refresh(self, permit, duration))
    }

    fn set_network<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        egress: Egress,
    ) -> BoxFuture<'a, Result<Result<(), SandboxError>, InvalidRule>> {
        Box::pin(Engine::set_network(self, permit, egress))
    }

    fn resize<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        resize: Resize,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(Engine::resize(self, permit, resize))
    }

    fn rotate_tokens<'a>(
        &'a self,
        permit: &'a SandboxPermit,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(Engine::rotate_tokens(self, permit))
    }
}
