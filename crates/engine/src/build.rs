//! Build a template: announce it, say what it does, watch it, end it.

mod base;
mod finalize;
mod home;
mod keys;
mod pack;
mod run;
mod scripts;
mod step;
mod turns;
mod workshop;

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::{BuildFailure, BuildRecord, BuildStatus, LogLevel, Plan};
use shoal_core::id::{BuildId, SnapshotId, TemplateId};
pub use shoal_core::ports::builds::{BuildError, NewBuild};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, TemplateRef};

pub(crate) use self::run::INTERRUPTED;
pub(crate) use self::turns::Turns;
use crate::build_records::Build;
use crate::engine::Engine;
use crate::entropy::{self};
use crate::templates::NameOwner;

/// How many builds of a team may be under way or wait for their turn.
pub const BUILDS_MAX: usize = 20;

/// How many builds of a team may be announced and not begun.
const ANNOUNCED_MAX: usize = 200;

impl Engine {
    /// Announces a build: of a new template, or of one that there is under this name.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub async fn announce_build(
        &self,
        principal: &Principal,
        new: NewBuild,
    ) -> Result<Arc<BuildRecord>, BuildError> {
        self.shared
            .access
            .bounds(principal.team)
            .grant(new.resources, new.resources.cpu)?;
        let _changing = self.shared.builds.changing.lock().await;
        let template = self.template_to_build(principal, &new.name)?;
        let is_template = |id: &TemplateId| self.shared.templates.has(id);
        self.shared
            .builds
            .forget_old(principal.team, is_template)
            .await?;
        let waiting = self
            .shared
            .builds
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
        let now = self.shared.clock.now();
        // What was said of a template that is yet to come counts for all its builds.
        let public = self
            .builds_of(&template)
            .first()
            .is_some_and(|build| build.public);
        let record = BuildRecord {
            id: BuildId::from_entropy(entropy::bytes()?),
            template,
            team: principal.team,
            name: new.name.name,
            tags,
            resources: new.resources,
            stock: false,
            public,
            status: BuildStatus::Waiting,
            failure: None,
            made: None,
            created_at: now,
            updated_at: now,
            finished_at: None,
        };
        Ok(self.shared.builds.insert(record).await?.record())
    }

    /// The template that a build of this name is of.
    fn template_to_build(
        &self,
        principal: &Principal,
        name: &TemplateRef,
    ) -> Result<TemplateId, BuildError> {
        let own = |slug: &String| slug == principal.slug.as_str();
        if !name.namespace.as_ref().is_none_or(own) {
            return Err(BuildError::Namespace(name.clone()));
        }
        match self.shared.templates.name_owner(principal, &name.name) {
            Some(NameOwner::Own(template)) => Ok(template.id.clone()),
            Some(NameOwner::Pending(template)) => Ok(template),
            Some(NameOwner::Builtin | NameOwner::Snapshot) => {
                Err(BuildError::Taken(name.name.clone()))
            }
            None => Ok(TemplateId::from_entropy(entropy::bytes()?)),
        }
    }

    /// Begins an announced build. It goes on by itself; [`Engine::build`] says how far it is.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub async fn begin_build(
        &self,
        principal: &Principal,
        id: BuildId,
        plan: Plan,
    ) -> Result<(), BuildError> {
        plan.validate()?;
        let changing = self.shared.builds.changing.lock().await;
        let (build, record) = self.own_build(principal, id)?;
        if record.status != BuildStatus::Waiting {
            return Err(BuildError::NotWaiting(id, record.status));
        }
        self.shared
            .access
            .bounds(record.team)
            .grant(record.resources, record.resources.cpu)?;
        if self
            .shared
            .builds
            .count(principal.team, BuildStatus::Building)
            >= BUILDS_MAX
        {
            return Err(BuildError::TooMany(BUILDS_MAX));
        }
        let begun = BuildRecord {
            status: BuildStatus::Building,
            updated_at: self.shared.clock.now(),
            ..record.as_ref().clone()
        };
        self.shared.builds.put(&build, begun).await?;
        drop(changing);
        let (engine, principal) = (self.clone(), principal.clone());
        let carried_out = async move { engine.carry_out(&principal, &build, plan).await };
        self.shared.work.spawn(carried_out);
        Ok(())
    }

    /// Ends a build that is not finished.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub async fn cancel_build(&self, principal: &Principal, id: BuildId) -> Result<(), BuildError> {
        let changing = self.shared.builds.changing.lock().await;
        let (build, record) = self.own_build(principal, id)?;
        match record.status {
            BuildStatus::Building => {
                build.cancelled.send_replace(true);
                Ok(())
            }
            BuildStatus::Waiting => {
                let failure = BuildFailure::whole("the build was cancelled");
                let dropped = self.fail_build(&build, failure).await?;
                drop(changing);
                self.shared.builds.release(dropped).await;
                Ok(())
            }
            done => Err(BuildError::NotWaiting(id, done)),
        }
    }

    fn own_build(
        &self,
        principal: &Principal,
        id: BuildId,
    ) -> Result<(Arc<Build>, Arc<BuildRecord>), BuildError> {
        let build = self.shared.builds.get(id);
        let own = build.map(|build| (build.record(), build));
        let own = own
            .filter(|(record, _)| record.team == principal.team || record.stock && principal.admin);
        let (record, build) = own.ok_or(BuildError::NotFound(id))?;
        Ok((build, record))
    }

    /// Notes that a build has failed, and why, and forgets those that have long before it. By whoever
    /// has [`BuildRecords::changing`](crate::build_records::BuildRecords::changing); returns the snapshots to be released
    /// when he has not.
    pub(crate) async fn fail_build(
        &self,
        build: &Build,
        failure: BuildFailure,
    ) -> Result<Vec<SnapshotId>, StoreError> {
        let now = self.shared.clock.now();
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
        self.shared.builds.put(build, failed).await?;
        if let Some(template) = self.shared.templates.by_id(&template) {
            return self.shared.builds.prune(&template).await;
        }
        let is_template = |id: &TemplateId| self.shared.templates.has(id);
        self.shared.builds.forget_old(team, is_template).await?;
        Ok(Vec::new())
    }
}
