//! Builds and images, which a cluster handles by other means. Each refusal names them; lists are empty.

use std::path::PathBuf;
use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::build::{BuildLogEntry, BuildRecord, FilesHash, LogLevel, Plan};
use shoal_core::id::{BuildId, TeamId, TemplateId};
use shoal_core::image::{Image, ImageError, ImageName, ProgressSink, RegistryAuth};
use shoal_core::ports::NotServed;
use shoal_core::ports::builds::{
    BuildError, BuildRequest, Builds, BuiltinError, Upload, UploadError, Uploads,
};
use shoal_core::ports::installation::InstalledImages;
use shoal_core::store::StoreError;
use shoal_core::template::{TemplateName, TemplateRef};

const BUILD: NotServed = NotServed {
    what: "the build of a template",
    instead: "build an image, push it to a registry, and name it in an entry of the template catalogue or in a SandboxSet",
};

const IMAGES: NotServed = NotServed {
    what: "an image store",
    instead: "push images to a registry: nodes pull them",
};

/// All of them.
pub(crate) struct Elsewhere;

fn refuse<'a, T: Send + 'a, E: From<NotServed> + Send + 'a>(
    what: NotServed,
) -> BoxFuture<'a, Result<T, E>> {
    Box::pin(std::future::ready(Err(what.into())))
}

impl Builds for Elsewhere {
    fn announce<'a>(
        &'a self,
        _: &'a Principal,
        _: BuildRequest,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuildError>> {
        refuse(BUILD)
    }

    fn begin<'a>(
        &'a self,
        _: &'a Principal,
        _: BuildId,
        _: Plan,
    ) -> BoxFuture<'a, Result<(), BuildError>> {
        refuse(BUILD)
    }

    fn cancel<'a>(&'a self, _: &'a Principal, _: BuildId) -> BoxFuture<'a, Result<(), BuildError>> {
        refuse(BUILD)
    }

    fn build_builtin<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a TemplateName,
        _: bool,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuiltinError>> {
        refuse(BUILD)
    }

    fn get<'a>(&'a self, _: &'a Principal, _: BuildId) -> BoxFuture<'a, Option<Arc<BuildRecord>>> {
        Box::pin(std::future::ready(None))
    }

    fn log(
        &self,
        _: BuildId,
        _: LogLevel,
    ) -> BoxFuture<'_, Result<Vec<BuildLogEntry>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn of_template(&self, _: &TemplateId) -> Vec<Arc<BuildRecord>> {
        Vec::new()
    }

    fn pending_templates(&self, _: &Principal) -> Vec<Arc<BuildRecord>> {
        Vec::new()
    }

    fn pending_template(&self, _: &Principal, _: &TemplateRef) -> Option<Arc<BuildRecord>> {
        None
    }
}

impl Uploads for Elsewhere {
    /// No signature is valid.
    fn sign(&self, _: TeamId, _: &FilesHash, _: i64) -> String {
        String::new()
    }

    fn is_signed(&self, _: TeamId, _: &FilesHash, _: i64, _: &str) -> bool {
        false
    }

    fn has<'a>(&'a self, _: TeamId, _: &'a FilesHash) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }

    fn max_bytes(&self) -> u64 {
        0
    }

    fn begin<'a>(
        &'a self,
        _: TeamId,
        _: &'a FilesHash,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, UploadError>> {
        refuse(BUILD)
    }
}

impl InstalledImages for Elsewhere {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>> {
        refuse(IMAGES)
    }

    fn pull(
        &self,
        _: ImageName,
        _: Option<RegistryAuth>,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        refuse(IMAGES)
    }

    fn import(
        &self,
        _: PathBuf,
        _: ImageName,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        refuse(IMAGES)
    }

    fn remove<'a>(&'a self, _: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        refuse(IMAGES)
    }
}
