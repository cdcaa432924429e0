//! Builds of templates, and uploads for them.

use std::future::ready;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::build::{BuildLogEntry, BuildRecord, FilesHash, LogLevel, Plan};
use shoal_core::id::{BuildId, TeamId, TemplateId};
use shoal_core::ports::builds::{
    BuildError, BuildRequest, Builds, BuiltinError, Upload, UploadError, Uploads,
};
use shoal_core::store::StoreError;
use shoal_core::template::{TemplateName, TemplateRef};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::engine::Engine;
use crate::uploads::IncomingUpload;

impl Builds for Engine {
    fn announce<'a>(
        &'a self,
        principal: &'a Principal,
        new: BuildRequest,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuildError>> {
        Box::pin(self.shared.builds.announce(principal, new))
    }

    fn begin<'a>(
        &'a self,
        principal: &'a Principal,
        id: BuildId,
        plan: Plan,
    ) -> BoxFuture<'a, Result<(), BuildError>> {
        Box::pin(self.shared.builds.begin(principal, id, plan))
    }

    fn cancel<'a>(
        &'a self,
        principal: &'a Principal,
        id: BuildId,
    ) -> BoxFuture<'a, Result<(), BuildError>> {
        Box::pin(self.shared.builds.cancel(principal, id))
    }

    fn build_builtin<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a TemplateName,
        force: bool,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuiltinError>> {
        Box::pin(self.shared.builds.build_builtin(principal, name, force))
    }

    fn get<'a>(
        &'a self,
        principal: &'a Principal,
        id: BuildId,
    ) -> BoxFuture<'a, Option<Arc<BuildRecord>>> {
        Box::pin(ready(self.shared.build_records.visible(principal, id)))
    }

    fn log(
        &self,
        id: BuildId,
        level: LogLevel,
    ) -> BoxFuture<'_, Result<Vec<BuildLogEntry>, StoreError>> {
        Box::pin(self.shared.build_records.log(id, level))
    }

    fn of_template(&self, template: &TemplateId) -> Vec<Arc<BuildRecord>> {
        self.shared.build_records.of_template(template)
    }

    fn pending_templates(&self, principal: &Principal) -> Vec<Arc<BuildRecord>> {
        self.shared.templates.pending(principal)
    }

    fn pending_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Option<Arc<BuildRecord>> {
        self.shared.templates.pending_named(principal, reference)
    }
}

impl Uploads for Engine {
    fn sign(&self, team: TeamId, hash: &FilesHash, expires: i64) -> String {
        self.shared.uploads.sign(team, hash, expires)
    }

    fn is_signed(&self, team: TeamId, hash: &FilesHash, expires: i64, signature: &str) -> bool {
        self.shared
            .uploads
            .is_signed(team, hash, expires, signature)
    }

    fn has<'a>(&'a self, team: TeamId, hash: &'a FilesHash) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let found = self.shared.uploads.find(team, hash).await;
            matches!(found, Ok(Some(_)))
        })
    }

    fn max_bytes(&self) -> u64 {
        self.shared.uploads.max_bytes()
    }

    fn begin<'a>(
        &'a self,
        team: TeamId,
        hash: &'a FilesHash,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, UploadError>> {
        Box::pin(async move {
            let incoming = self.shared.uploads.begin(team, hash).await?;
            let gone = || io::Error::from(io::ErrorKind::NotFound);
            let file = File::create(incoming.path().ok_or_else(gone)?).await?;
            let upload: Box<dyn Upload> = Box::new(FileUpload { file, incoming });
            Ok(upload)
        })
    }
}

/// An upload that is written to a file. The file is closed before its space is released.
struct FileUpload {
    file: File,
    incoming: IncomingUpload,
}

impl Upload for FileUpload {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), UploadError>> {
        Box::pin(async move {
            self.incoming.reserve(piece.len() as u64).await?;
            Ok(self.file.write_all(&piece).await?)
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), UploadError>> {
        Box::pin(async move {
            let Self { mut file, incoming } = *self;
            file.flush().await?;
            drop(file);
            let kept = tokio::task::spawn_blocking(move || incoming.keep()).await;
            kept.map_err(io::Error::other)?
        })
    }
}
