//! Builds of templates: announces, runs, cancels and recovers them.

mod base;
mod builtin;
mod finalize;
mod home;
mod keys;
mod pack;
mod queue;
mod recover;
mod release;
mod run;
mod sandbox;
mod scripts;
mod step;

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::Principal;
use shoal_core::build::{BuildFailure, BuildRecord, BuildStatus, LogLevel, Plan};
use shoal_core::clock::Clock;
use shoal_core::driver::Capabilities;
use shoal_core::id::{BuildId, SnapshotId, TemplateId};
pub use shoal_core::ports::builds::{BuildError, BuildRequest, BuiltinError};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, TemplateRef};
use tokio::sync::Mutex;

use self::queue::BuildQueue;
use crate::access::Access;
use crate::build_records::{Build, BuildRecords};
use crate::config::{BuildOnDemand, EngineConfig};
use crate::guest::Guest;
use crate::images::NodeImages;
use crate::plan::Planner;
use crate::random;
use crate::resolve::Resolver;
use crate::sandboxes::Sandboxes;
use crate::templates::{NameOwner, Templates};
use crate::uploads::Uploads;
use crate::work::Work;

/// How many builds of a team may run or wait in the queue.
pub const BUILDS_MAX: usize = 20;

/// How many announced builds of a team may wait for their start.
const ANNOUNCED_MAX: usize = 200;

/// The dependencies of [`Builds`].
pub(crate) struct BuildParts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) machine: Capabilities,
    pub(crate) access: Arc<Access>,
    pub(crate) records: Arc<BuildRecords>,
    pub(crate) images: Arc<NodeImages>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) planner: Arc<Planner>,
    pub(crate) work: Work,
}

/// Builds of templates.
pub(crate) struct Builds {
    parts: BuildParts,
    max_timeout: Duration,
    on_demand: BuildOnDemand,
    queue: BuildQueue,
    /// Held while a caller checks for a running build of a builtin template and begins one.
    beginning: Mutex<()>,
}

impl Builds {
    pub(crate) fn new(config: &EngineConfig, parts: BuildParts) -> Self {
        Self {
            parts,
            max_timeout: config.limits.max_timeout,
            on_demand: config.build_on_demand,
            queue: BuildQueue::default(),
            beginning: Mutex::new(()),
        }
    }

    /// The resolver of builds. It begins builds of missing builtin templates through this service.
    pub(crate) fn resolver(&self) -> &Arc<Resolver> {
        &self.parts.resolver
    }

    /// Announces a build of a new template, or of the existing one with this name.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) async fn announce(
        &self,
        principal: &Principal,
        new: BuildRequest,
    ) -> Result<Arc<BuildRecord>, BuildError> {
        let bounds = self.parts.access.bounds(principal.team);
        bounds.grant(new.resources, new.resources.cpu)?;
        let _changing = self.parts.records.changing.lock().await;
        let template = self.template_to_build(principal, &new.name)?;
        let is_template = |id: &TemplateId| self.parts.templates.has(id);
        self.parts
            .records
            .forget_old(principal.team, is_template)
            .await?;
        let waiting = self
            .parts
            .records
            .count(principal.team, BuildStatus::Waiting);
        if waiting >= ANNOUNCED_MAX {
            return Err(BuildError::TooManyAnnounced(ANNOUNCED_MAX));
        }
        let mut tags = new.tags;
        tags.extend(new.name.tag);
        if tags.is_empty() {
            tags.push(DEFAULT_TAG.to_owned());
        }
        tags.sort();
        tags.dedup();
        let now = self.parts.clock.now();
        // All builds of a pending template share its visibility.
        let builds = self.parts.records.of_template(&template);
        let public = builds.first().is_some_and(|build| build.public);
        let record = BuildRecord {
            id: BuildId::from_entropy(random::bytes()?),
            template,
            team: principal.team,
            name: new.name.name,
            tags,
            resources: new.resources,
            builtin: false,
            public,
            status: BuildStatus::Waiting,
            failure: None,
            made: None,
            created_at: now,
            updated_at: now,
            finished_at: None,
        };
        Ok(self.parts.records.insert(record).await?.record())
    }

    /// The id of the template that a build with this name is for.
    fn template_to_build(
        &self,
        principal: &Principal,
        name: &TemplateRef,
    ) -> Result<TemplateId, BuildError> {
        let own = |slug: &String| slug == principal.slug.as_str();
        if !name.namespace.as_ref().is_none_or(own) {
            return Err(BuildError::Namespace(name.clone()));
        }
        match self.parts.templates.name_owner(principal, &name.name) {
            Some(NameOwner::Own(template)) => Ok(template.id.clone()),
            Some(NameOwner::Pending(template)) => Ok(template),
            Some(NameOwner::Builtin | NameOwner::Snapshot) => {
                Err(BuildError::Taken(name.name.clone()))
            }
            None => Ok(TemplateId::from_entropy(random::bytes()?)),
        }
    }

    /// Begins an announced build, which continues on a task of its own.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) async fn begin(
        self: &Arc<Self>,
        principal: &Principal,
        id: BuildId,
        plan: Plan,
    ) -> Result<(), BuildError> {
        plan.validate()?;
        let changing = self.parts.records.changing.lock().await;
        let (build, record) = self.own(principal, id)?;
        if record.status != BuildStatus::Waiting {
            return Err(BuildError::NotWaiting(id, record.status));
        }
        let bounds = self.parts.access.bounds(record.team);
        bounds.grant(record.resources, record.resources.cpu)?;
        if self
            .parts
            .records
            .count(principal.team, BuildStatus::Building)
            >= BUILDS_MAX
        {
            return Err(BuildError::TooMany(BUILDS_MAX));
        }
        let begun = BuildRecord {
            status: BuildStatus::Building,
            updated_at: self.parts.clock.now(),
            ..record.as_ref().clone()
        };
        self.parts.records.put(&build, begun).await?;
        drop(changing);
        let (builds, principal) = (self.clone(), principal.clone());
        let run = async move { builds.run(&principal, &build, plan).await };
        self.parts.work.spawn(run);
        Ok(())
    }

    /// Cancels a build that is not finished.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) async fn cancel(
        &self,
        principal: &Principal,
        id: BuildId,
    ) -> Result<(), BuildError> {
        let changing = self.parts.records.changing.lock().await;
        let (build, record) = self.own(principal, id)?;
        match record.status {
            BuildStatus::Building => {
                build.cancelled.send_replace(true);
                Ok(())
            }
            BuildStatus::Waiting => {
                let failure = BuildFailure::whole("the build was cancelled");
                let dropped = self.fail(&build, failure).await?;
                drop(changing);
                self.parts.records.release(dropped).await;
                Ok(())
            }
            done => Err(BuildError::NotWaiting(id, done)),
        }
    }

    /// A build of the caller's team. Admins may also change builds of builtin templates.
    fn own(
        &self,
        principal: &Principal,
        id: BuildId,
    ) -> Result<(Arc<Build>, Arc<BuildRecord>), BuildError> {
        let build = self.parts.records.get(id);
        let own = build.map(|build| (build.record(), build));
        let own = own.filter(|(record, _)| {
            record.team == principal.team || record.builtin && principal.admin
        });
        let (record, build) = own.ok_or(BuildError::NotFound(id))?;
        Ok((build, record))
    }

    /// Marks a build as failed, and forgets the oldest failed ones. The caller holds
    /// [`BuildRecords::changing`], and releases the returned snapshots after it.
    async fn fail(
        &self,
        build: &Build,
        failure: BuildFailure,
    ) -> Result<Vec<SnapshotId>, StoreError> {
        let now = self.parts.clock.now();
        build.say(now, LogLevel::Error, failure.part, &failure.message);
        let failed = BuildRecord {
            status: BuildStatus::Error,
            failure: Some(failure),
            made: None,
            updated_at: now,
            finished_at: Some(now),
            ..build.record().as_ref().clone()
        };
        let (template, team) = (failed.template.clone(), failed.team);
        self.parts.records.put(build, failed).await?;
        if let Some(template) = self.parts.templates.by_id(&template) {
            return self.parts.records.prune(&template).await;
        }
        let is_template = |id: &TemplateId| self.parts.templates.has(id);
        self.parts.records.forget_old(team, is_template).await?;
        Ok(Vec::new())
    }
}
