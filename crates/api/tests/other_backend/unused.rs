//! The ports that the tests do not use: nothing exists, and every change is refused.

use std::collections::BTreeMap;
use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, SandboxPermit, TeamSlug};
use shoal_core::build::{BuildLogEntry, BuildRecord, FilesHash, LogLevel, Plan};
use shoal_core::clock::Timestamp;
use shoal_core::driver::Capabilities;
use shoal_core::id::{BuildId, SandboxId, SnapshotId, TeamId, TemplateId};
use shoal_core::image::{Image, ImageError, ImageName, ProgressSink, RegistryAuth};
use shoal_core::limits::TeamLimits;
use shoal_core::ports::NotServed;
use shoal_core::ports::access::{TeamError, TeamView, Teams};
use shoal_core::ports::builds::{
    BuildError, BuildRequest, Builds, BuiltinError, Upload, UploadError, Uploads,
};
use shoal_core::ports::catalogue::{
    CatalogueError, CatalogueInForce, RefusedEdit, TemplateCatalogue,
};
use shoal_core::ports::create::CreateError;
use shoal_core::ports::installation::{Installation, InstallationLimits, InstalledImages};
use shoal_core::ports::observe::{
    LogEntry, LogQuery, Sample, SandboxEvent, SandboxEvents, Scope, SeenStream, SubscribeError,
    TeamSample, Telemetry, Use,
};
use shoal_core::ports::pools::{MemberView, PoolSample, PoolView, Pools};
use shoal_core::ports::resolve::{Explained, Resolved};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::snapshots::{
    NewSnapshot, SnapshotError, SnapshotFilter, Snapshots, TakeError,
};
use shoal_core::ports::templates::{
    CreateTemplateError, Starts, TagError, TemplateError, TemplateRequest, Templates,
};
use shoal_core::resources::{Mib, MilliCpu};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::store::StoreError;
use shoal_core::template::{Template, TemplateKey, TemplateName, TemplateRef};

/// An empty backend.
pub(crate) struct Unused(Capabilities);

impl Default for Unused {
    fn default() -> Self {
        Self(Capabilities {
            driver: "none".to_owned(),
            runtimes: Vec::new(),
            daemon: String::new(),
            disk_limit: String::new(),
            cpu: MilliCpu(0),
            memory: Mib(0),
            disk: None,
        })
    }
}

fn nothing() -> Use {
    Use {
        states: BTreeMap::new(),
        counted: 0,
        starting: 0,
        cpu: MilliCpu(0),
        memory_mib: 0,
        teams: 0,
    }
}

impl Snapshots for Unused {
    fn take<'a>(
        &'a self,
        _: &'a Principal,
        permit: &'a SandboxPermit,
        _: NewSnapshot,
    ) -> BoxFuture<'a, Result<SnapshotRecord, TakeError>> {
        Box::pin(ready(Err(
            SandboxError::Busy(permit.sandbox().clone()).into()
        )))
    }

    fn list(&self, _: &Principal, _: &SnapshotFilter) -> Vec<Arc<SnapshotRecord>> {
        Vec::new()
    }

    fn add_tags<'a>(
        &'a self,
        _: &'a Principal,
        reference: &'a TemplateRef,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<SnapshotId, SnapshotError>> {
        Box::pin(ready(Err(SnapshotError::NotFound(reference.clone()))))
    }

    fn delete<'a>(
        &'a self,
        _: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), SnapshotError>> {
        Box::pin(ready(Err(SnapshotError::NotFound(reference.clone()))))
    }

    fn export<'a>(
        &'a self,
        _: &'a Principal,
        reference: &'a TemplateRef,
        _: PathBuf,
    ) -> BoxFuture<'a, Result<u64, SnapshotError>> {
        Box::pin(ready(Err(SnapshotError::NotFound(reference.clone()))))
    }

    fn import<'a>(
        &'a self,
        _: &'a Principal,
        _: PathBuf,
        _: Option<TemplateRef>,
        _: bool,
    ) -> BoxFuture<'a, Result<SnapshotRecord, SnapshotError>> {
        Box::pin(ready(Err(SnapshotError::Store(StoreError::NoSpace))))
    }
}

impl Templates for Unused {
    fn resolve(
        &self,
        _: &Principal,
        _: Option<&TemplateKey>,
        _: Option<&ImageName>,
    ) -> Result<Resolved, CreateError> {
        Err(CreateError::NoTemplate)
    }

    fn explain<'a>(
        &'a self,
        _: &'a Principal,
        _: Option<&'a TemplateKey>,
        _: Option<&'a ImageName>,
    ) -> BoxFuture<'a, Result<Explained, CreateError>> {
        Box::pin(ready(Err(CreateError::NoTemplate)))
    }

    fn get(&self, _: &Principal, reference: &TemplateRef) -> Result<Arc<Template>, TemplateError> {
        Err(TemplateError::NotFound(reference.to_string()))
    }

    fn find(&self, _: &Principal, _: &TemplateRef) -> Option<Arc<Template>> {
        None
    }

    fn by_id(&self, _: &TemplateId) -> Option<Arc<Template>> {
        None
    }

    fn list(&self, _: &Principal) -> Vec<Arc<Template>> {
        Vec::new()
    }

    fn starts(&self, _: &TemplateId) -> Starts {
        Starts::default()
    }

    fn create<'a>(
        &'a self,
        _: &'a Principal,
        new: TemplateRequest,
    ) -> BoxFuture<'a, Result<Template, CreateTemplateError>> {
        Box::pin(ready(Err(CreateTemplateError::NameTaken(new.name))))
    }

    fn delete<'a>(
        &'a self,
        _: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), TemplateError>> {
        Box::pin(ready(Err(TemplateError::NotFound(reference.to_string()))))
    }

    fn publish<'a>(
        &'a self,
        _: &'a Principal,
        reference: &'a TemplateRef,
        _: bool,
    ) -> BoxFuture<'a, Result<(), TagError>> {
        Box::pin(ready(Err(TagError::NotBuilt(reference.clone()))))
    }

    fn add_tags<'a>(
        &'a self,
        _: &'a Principal,
        target: &'a TemplateRef,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<BuildId, TagError>> {
        Box::pin(ready(Err(TagError::NotBuilt(target.clone()))))
    }

    fn add_tags_to_build<'a>(
        &'a self,
        _: &'a Principal,
        build: BuildId,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<BuildId, TagError>> {
        Box::pin(ready(Err(TagError::NotKept(build))))
    }

    fn remove_tags<'a>(
        &'a self,
        _: &'a Principal,
        template: &'a TemplateRef,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<(), TagError>> {
        Box::pin(ready(Err(TagError::NotBuilt(template.clone()))))
    }
}

impl Builds for Unused {
    fn announce<'a>(
        &'a self,
        _: &'a Principal,
        _: BuildRequest,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuildError>> {
        Box::pin(ready(Err(BuildError::TooMany(0))))
    }

    fn begin<'a>(
        &'a self,
        _: &'a Principal,
        id: BuildId,
        _: Plan,
    ) -> BoxFuture<'a, Result<(), BuildError>> {
        Box::pin(ready(Err(BuildError::NotFound(id))))
    }

    fn cancel<'a>(
        &'a self,
        _: &'a Principal,
        id: BuildId,
    ) -> BoxFuture<'a, Result<(), BuildError>> {
        Box::pin(ready(Err(BuildError::NotFound(id))))
    }

    fn build_builtin<'a>(
        &'a self,
        _: &'a Principal,
        name: &'a TemplateName,
        _: bool,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuiltinError>> {
        Box::pin(ready(Err(BuiltinError::Forbidden(name.clone()))))
    }

    fn get<'a>(&'a self, _: &'a Principal, _: BuildId) -> BoxFuture<'a, Option<Arc<BuildRecord>>> {
        Box::pin(ready(None))
    }

    fn log(
        &self,
        _: BuildId,
        _: LogLevel,
    ) -> BoxFuture<'_, Result<Vec<BuildLogEntry>, StoreError>> {
        Box::pin(ready(Ok(Vec::new())))
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

impl Uploads for Unused {
    fn sign(&self, _: TeamId, _: &FilesHash, _: i64) -> String {
        String::new()
    }

    fn is_signed(&self, _: TeamId, _: &FilesHash, _: i64, _: &str) -> bool {
        false
    }

    fn has<'a>(&'a self, _: TeamId, _: &'a FilesHash) -> BoxFuture<'a, bool> {
        Box::pin(ready(false))
    }

    fn max_bytes(&self) -> u64 {
        0
    }

    fn begin<'a>(
        &'a self,
        _: TeamId,
        _: &'a FilesHash,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, UploadError>> {
        Box::pin(ready(Err(UploadError::TooLarge(0))))
    }
}

impl TemplateCatalogue for Unused {
    fn in_force(&self) -> Arc<CatalogueInForce> {
        Arc::default()
    }

    fn refused_edit(&self) -> Option<RefusedEdit> {
        None
    }

    fn replace<'a>(
        &'a self,
        _: &'a str,
        _: Option<u64>,
    ) -> BoxFuture<'a, Result<Arc<CatalogueInForce>, CatalogueError>> {
        Box::pin(ready(Err(CatalogueError::Store(StoreError::NoSpace))))
    }
}

impl Pools for Unused {
    fn list(&self) -> BoxFuture<'_, Vec<PoolView>> {
        Box::pin(ready(Vec::new()))
    }

    fn members<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Option<Vec<MemberView>>> {
        Box::pin(ready(None))
    }

    fn history<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Option<Vec<PoolSample>>> {
        Box::pin(ready(None))
    }

    fn remove<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Option<usize>> {
        Box::pin(ready(None))
    }
}

impl Teams for Unused {
    fn list<'a>(&'a self, _: &'a Principal) -> BoxFuture<'a, Result<Vec<TeamView>, TeamError>> {
        Box::pin(ready(Err(TeamError::Forbidden)))
    }

    fn limits(&self, _: &Principal) -> TeamLimits {
        TeamLimits::default()
    }

    fn set_limits<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a TeamSlug,
        _: TeamLimits,
    ) -> BoxFuture<'a, Result<(), TeamError>> {
        Box::pin(ready(Err(TeamError::Forbidden)))
    }

    fn slug(&self, _: TeamId) -> Option<TeamSlug> {
        None
    }
}

impl Telemetry for Unused {
    fn logs<'a>(
        &'a self,
        _: &'a Principal,
        sandbox: &'a SandboxId,
        _: LogQuery,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, SandboxError>> {
        Box::pin(ready(Err(SandboxError::NotFound(sandbox.clone()))))
    }

    fn metrics<'a>(
        &'a self,
        _: &'a SandboxPermit,
        _: Option<Timestamp>,
        _: Option<Timestamp>,
    ) -> BoxFuture<'a, Vec<Sample>> {
        Box::pin(ready(Vec::new()))
    }

    fn events<'a>(
        &'a self,
        _: &'a Principal,
        _: Option<&'a SandboxId>,
        _: usize,
    ) -> BoxFuture<'a, Vec<SandboxEvent>> {
        Box::pin(ready(Vec::new()))
    }

    fn team_metrics<'a>(
        &'a self,
        _: &'a Principal,
        _: Timestamp,
        _: Timestamp,
    ) -> BoxFuture<'a, Vec<TeamSample>> {
        Box::pin(ready(Vec::new()))
    }

    fn usage<'a>(&'a self, _: &'a Principal) -> BoxFuture<'a, Use> {
        Box::pin(ready(nothing()))
    }

    fn usage_of_all<'a>(&'a self, _: &'a Principal) -> BoxFuture<'a, Option<Use>> {
        Box::pin(ready(None))
    }
}

impl SandboxEvents for Unused {
    fn subscribe(&self, _: &Principal, _: Scope) -> Result<SeenStream, SubscribeError> {
        Err(SubscribeError::NotServed(NotServed {
            what: "the stream of events",
            instead: "read the list",
        }))
    }
}

impl Installation for Unused {
    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn limits(&self) -> InstallationLimits {
        InstallationLimits {
            max_timeout: Duration::from_secs(3600),
            sandboxes: 0,
        }
    }
}

impl InstalledImages for Unused {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn pull(
        &self,
        name: ImageName,
        _: Option<RegistryAuth>,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(ready(Err(ImageError::NotFound(name))))
    }

    fn import(
        &self,
        _: PathBuf,
        name: ImageName,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(ready(Err(ImageError::NotFound(name))))
    }

    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        Box::pin(ready(Err(ImageError::NotFound(name.clone()))))
    }
}
