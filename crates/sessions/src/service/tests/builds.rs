//! Builds of templates that begin and do not end.

use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::build::{BuildLogEntry, BuildRecord, BuildStatus, LogLevel, Plan};
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::ports::builds::{BuildError, BuildRequest, BuiltinError};
use shoal_core::resources::Resources;
use shoal_core::template::{TemplateName, TemplateRef};

use super::*;

#[derive(Default)]
pub(super) struct BuiltOnDemand(Mutex<Vec<(TeamId, TemplateName)>>);

impl BuiltOnDemand {
    /// For which teams which templates were built.
    pub(super) fn begun(&self) -> Vec<(TeamId, TemplateName)> {
        self.0.lock().clone()
    }
}

const UNUSED: &str = "a session builds templates of the installation only";

impl Builds for BuiltOnDemand {
    fn build_builtin<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a TemplateName,
        force: bool,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuiltinError>> {
        assert!(!force);
        self.0.lock().push((principal.team, name.clone()));
        let record = BuildRecord {
            id: BuildId::from_entropy([1; 16]),
            template: TemplateId::from_entropy([2; 16]),
            team: principal.team,
            name: name.clone(),
            tags: Vec::new(),
            resources: Resources::default(),
            public: false,
            status: BuildStatus::Building,
            failure: None,
            made: None,
            builtin: true,
            created_at: Timestamp::from_unix_millis(0),
            updated_at: Timestamp::from_unix_millis(0),
            finished_at: None,
        };
        Box::pin(async { Ok(Arc::new(record)) })
    }

    fn announce<'a>(
        &'a self,
        _: &'a Principal,
        _: BuildRequest,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuildError>> {
        unreachable!("{UNUSED}")
    }

    fn begin<'a>(
        &'a self,
        _: &'a Principal,
        _: BuildId,
        _: Plan,
    ) -> BoxFuture<'a, Result<(), BuildError>> {
        unreachable!("{UNUSED}")
    }

    fn cancel<'a>(&'a self, _: &'a Principal, _: BuildId) -> BoxFuture<'a, Result<(), BuildError>> {
        unreachable!("{UNUSED}")
    }

    fn get<'a>(&'a self, _: &'a Principal, _: BuildId) -> BoxFuture<'a, Option<Arc<BuildRecord>>> {
        unreachable!("{UNUSED}")
    }

    fn log(
        &self,
        _: BuildId,
        _: LogLevel,
    ) -> BoxFuture<'_, Result<Vec<BuildLogEntry>, StoreError>> {
        unreachable!("{UNUSED}")
    }

    fn of_template(&self, _: &TemplateId) -> Vec<Arc<BuildRecord>> {
        unreachable!("{UNUSED}")
    }

    fn pending_templates(&self, _: &Principal) -> Vec<Arc<BuildRecord>> {
        unreachable!("{UNUSED}")
    }

    fn pending_template(&self, _: &Principal, _: &TemplateRef) -> Option<Arc<BuildRecord>> {
        unreachable!("{UNUSED}")
    }
}
