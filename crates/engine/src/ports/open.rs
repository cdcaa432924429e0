//! The way into sandboxes.

use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::{SandboxPermit, Token};
use shoal_core::ports::inside::{SandboxAccess, SandboxClient};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::sandbox::SandboxRecord;

use crate::engine::Engine;

impl SandboxAccess for Engine {
    fn open<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        user: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Arc<dyn SandboxClient>, SandboxError>> {
        Box::pin(Engine::open_client(self, permit, user))
    }

    fn envd_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        Engine::envd_access_token(self, record)
    }

    fn traffic_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        Engine::traffic_access_token(self, record)
    }
}
