//! The way into sandboxes.

use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::{SandboxPermit, Token};
use shoal_core::ports::inside::{
    ByteStream, FileContents, FileEntry, InsideError, RunningCommand, SandboxAccess, SandboxClient,
    SandboxCommand,
};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::sandbox::SandboxRecord;

use crate::engine::Engine;
use crate::sandboxes::Inside;

impl SandboxAccess for Engine {
    fn open<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        user: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Arc<dyn SandboxClient>, SandboxError>> {
        Box::pin(async move {
            let inside = self.inside(permit).await?;
            let client: Arc<dyn SandboxClient> = match user {
                Some(user) => Arc::new(inside.with_user(user)),
                None => Arc::new(inside),
            };
            Ok(client)
        })
    }

    fn envd_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        Engine::envd_access_token(self, record)
    }

    fn traffic_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        Engine::traffic_access_token(self, record)
    }
}

impl SandboxClient for Inside {
    fn run(&self, command: SandboxCommand) -> BoxFuture<'_, Result<RunningCommand, InsideError>> {
        Box::pin(Inside::run(self, command))
    }

    fn write_file(
        &self,
        path: String,
        contents: ByteStream,
    ) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(Inside::write_file(self, path, contents))
    }

    fn read_file(&self, path: String) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        Box::pin(Inside::read_file(self, path))
    }

    fn list_dir(&self, path: String) -> BoxFuture<'_, Result<Vec<FileEntry>, InsideError>> {
        Box::pin(Inside::list_dir(self, path))
    }

    fn stat(&self, path: String) -> BoxFuture<'_, Result<FileEntry, InsideError>> {
        Box::pin(Inside::stat(self, path))
    }

    fn remove(&self, path: String) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(Inside::remove(self, path))
    }
}
