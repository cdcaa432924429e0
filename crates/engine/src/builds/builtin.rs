//! Builds of built-in templates, started by an admin or by the first create that needs one.
//!
//! They run in the name of the installation's own team, which has no key. So no upload, build or name
//! of a team can become part of a template that all teams use.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::build::{BuildRecord, BuildStatus, Part, Plan};
use shoal_core::id::BuildId;
use shoal_core::ports::create::CreateError;
use shoal_core::template::{DEFAULT_TAG, Template, TemplateName, TemplateRef};

use super::{Builds, BuiltinError};
use crate::access::INSTALLATION;
use crate::build_records::Build;
use crate::config::BuildOnDemand;
use crate::random;
use crate::resolve::TemplateSource;
use crate::templates::{BuiltinDefinition, BuiltinTemplate, PreparedBuiltin, TemplateError};

/// How long a create waits for a build that is about to finish. Clients wait longer than this.
const FINISH_TIMEOUT: Duration = Duration::from_secs(40);

/// For how long after a failure only admins can retry the build.
const RETRY_AFTER: Duration = Duration::from_secs(60);

impl Builds {
    /// Builds a builtin template, or returns the build that is running. The build continues on a task
    /// of its own. Only admins may `force` it, or retry it right after a failure.
    ///
    /// # Errors
    /// See [`BuiltinError`].
    pub(crate) async fn build_builtin(
        self: &Arc<Self>,
        principal: &Principal,
        name: &TemplateName,
        force: bool,
    ) -> Result<Arc<BuildRecord>, BuiltinError> {
        let registered = self.parts.templates.builtin();
        let template = registered.find(name).ok_or_else(|| BuiltinError::Unknown {
            name: name.clone(),
            known: registered.names(),
        })?;
        let _beginning = self.beginning.lock().await;
        if let Some(build) = self.latest(&template, BuildStatus::Building) {
            return Ok(build.record());
        }
        if principal.admin {
            return Ok(self.begin_builtin(&template, force).await?.record());
        }
        if self.parts.templates.has(&template.id) {
            return Err(BuiltinError::Forbidden(name.clone()));
        }
        if let Some(reason) = self.failed_lately(&template) {
            return Err(BuiltinError::NotBuilt(name.clone(), reason));
        }
        self.check_on_demand(principal, name)?;
        // Only an admin's request can ignore the layers of the installation.
        Ok(self.begin_builtin(&template, false).await?.record())
    }

    /// Checks that a request of `principal` may spend the minutes that a builtin build takes. The
    /// installation's own requests come from pools, which the operator has configured.
    fn check_on_demand(
        &self,
        principal: &Principal,
        name: &TemplateName,
    ) -> Result<(), BuiltinError> {
        let everyone = self.on_demand == BuildOnDemand::Everyone;
        if everyone || principal.admin || principal.team == INSTALLATION.team {
            return Ok(());
        }
        Err(BuiltinError::AdminsOnly(name.clone()))
    }

    async fn begin_builtin(
        self: &Arc<Self>,
        template: &Arc<BuiltinTemplate>,
        force: bool,
    ) -> Result<Arc<Build>, BuiltinError> {
        let files = |error| BuiltinError::Files(template.name.clone(), error);
        let (builds, definition) = (self.clone(), template.definition.clone());
        let prepared = tokio::task::spawn_blocking(move || builds.prepare(&*definition));
        let prepared = prepared
            .await
            .map_err(|e| files(std::io::Error::other(e)))?;
        let plan = Plan {
            force,
            ..prepared.map_err(files)?
        };
        let now = self.parts.clock.now();
        let bounds = self.parts.access.bounds(INSTALLATION.team);
        let record = BuildRecord {
            id: BuildId::from_entropy(random::bytes()?),
            template: template.id.clone(),
            team: INSTALLATION.team,
            name: template.name.clone(),
            tags: vec![DEFAULT_TAG.to_owned()],
            resources: bounds.nearest(template.resources),
            public: false,
            status: BuildStatus::Building,
            failure: None,
            made: None,
            builtin: true,
            created_at: now,
            updated_at: now,
            finished_at: None,
        };
        let build = self.parts.records.insert(record).await?;
        let (builds, begun) = (self.clone(), build.clone());
        let run = async move { builds.run(&INSTALLATION, &begun, plan).await };
        self.parts.work.spawn(run);
        Ok(build)
    }

    /// Stores the files of a definition as uploads of the installation. As slow as the disk.
    fn prepare(&self, definition: &dyn BuiltinDefinition) -> std::io::Result<Plan> {
        let PreparedBuiltin { plan, files } = definition.prepare()?;
        for (hash, archive) in files {
            let file = self.parts.uploads.blocking_temporary()?;
            std::fs::write(&file, archive)?;
            let uploads = &self.parts.uploads;
            let kept = uploads.blocking_keep(INSTALLATION.team, &hash, file);
            kept.map_err(std::io::Error::other)?;
        }
        Ok(plan)
    }

    /// The newest build of a builtin template, if it has this status.
    fn latest(&self, template: &BuiltinTemplate, status: BuildStatus) -> Option<Arc<Build>> {
        let builds = self.parts.records.of_template(&template.id);
        let newest = builds.into_iter().next()?;
        let found = (newest.status == status).then_some(newest.id)?;
        self.parts.records.get(found)
    }

    /// Why the newest build of a builtin template failed, for a while after the failure.
    fn failed_lately(&self, template: &BuiltinTemplate) -> Option<String> {
        let record = self.latest(template, BuildStatus::Error)?.record();
        let lately = record.updated_at + RETRY_AFTER > self.parts.clock.now();
        lately.then(|| reason(&record))
    }

    /// Waits for a builtin template that is not built yet, if its build is about to finish. Begins the
    /// build if none is running and `principal` may.
    ///
    /// # Errors
    /// When no builtin template has this name, or when it is being built or could not be built.
    async fn await_builtin(
        self: &Arc<Self>,
        principal: &Principal,
        name: &str,
    ) -> Result<(), CreateError> {
        let missing = || TemplateError::NotFound(name.to_owned());
        let plain = |reference: &TemplateRef| {
            let tag = reference.tag.as_deref();
            reference.namespace.is_none() && tag.is_none_or(|tag| tag == DEFAULT_TAG)
        };
        let reference = name.parse().ok().filter(plain).ok_or_else(missing)?;
        let template = self.parts.templates.builtin().find(&reference.name);
        let template = template.ok_or_else(missing)?;
        let Some(build) = self.running_build(principal, &template).await? else {
            return Ok(());
        };
        if build.last_part() == Some(Part::Finalize) {
            tokio::select! {
                () = build.ended() => {}
                () = self.parts.clock.sleep_until(self.parts.clock.now() + FINISH_TIMEOUT) => {}
            }
        }
        let record = build.record();
        match record.status {
            BuildStatus::Ready => Ok(()),
            BuildStatus::Error => Err(CreateError::NotBuilt {
                template: template.name.clone(),
                reason: reason(&record),
            }),
            BuildStatus::Building | BuildStatus::Waiting => Err(CreateError::BeingBuilt {
                template: template.name.clone(),
                build: format!("{}/{}", record.template, record.id),
            }),
        }
    }

    /// The running build of a template that is not built yet, started if necessary. None when the
    /// template has become ready in the meantime.
    async fn running_build(
        self: &Arc<Self>,
        principal: &Principal,
        template: &Arc<BuiltinTemplate>,
    ) -> Result<Option<Arc<Build>>, CreateError> {
        let _beginning = self.beginning.lock().await;
        if self.parts.templates.has(&template.id) {
            return Ok(None);
        }
        if let Some(build) = self.latest(template, BuildStatus::Building) {
            return Ok(Some(build));
        }
        if let Some(reason) = self.failed_lately(template) {
            let template = template.name.clone();
            return Err(CreateError::NotBuilt { template, reason });
        }
        self.check_on_demand(principal, &template.name)?;
        tracing::info!(template = %template.name, "building a template that was asked for");
        Ok(Some(self.begin_builtin(template, false).await?))
    }
}

impl TemplateSource for Builds {
    fn template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError> {
        self.parts.templates.resolve(principal, reference)
    }

    fn build_missing<'a>(
        self: Arc<Self>,
        principal: &'a Principal,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), CreateError>> {
        Box::pin(async move { self.await_builtin(principal, name).await })
    }
}

/// Why a build failed.
fn reason(record: &BuildRecord) -> String {
    let failure = record.failure.as_ref();
    failure.map_or_else(String::new, |failure| failure.message.clone())
}

#[cfg(test)]
mod tests {
    use shoal_core::id::TemplateId;
    use shoal_core::resources::Resources;

    use super::*;
    use crate::test_util;

    struct Broken;

    impl BuiltinDefinition for Broken {
        fn prepare(&self) -> std::io::Result<PreparedBuiltin> {
            Err(std::io::Error::other("nobody builds it"))
        }
    }

    #[tokio::test]
    async fn a_template_that_has_become_ready_is_not_built_again() {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        let id = TemplateId::from_entropy([9; 16]);
        engine.register_builtin(BuiltinTemplate {
            id: id.clone(),
            name: "made".parse().unwrap(),
            description: String::new(),
            resources: Resources::default(),
            definition: Arc::new(Broken),
        });
        let builds = &engine.shared.builds;
        let missing = builds.await_builtin(&INSTALLATION, "made").await;
        assert!(
            matches!(missing, Err(CreateError::Builtin(_))),
            "{missing:?}"
        );
        let build = BuildId::from_entropy([1; 16]);
        let image = "test/image:1".parse().unwrap();
        let template = Template {
            names: vec!["made".parse().unwrap()],
            public: true,
            ..Template::over(id, build, image, engine.now())
        };
        engine.put_template(template).await.unwrap();
        builds.await_builtin(&INSTALLATION, "made").await.unwrap();
    }
}
