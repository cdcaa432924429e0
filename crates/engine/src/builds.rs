//! Builds: what there is of them, what they have said, and the layers that they stand on.

mod one;
mod turns;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use shoal_core::auth::Principal;
use shoal_core::build::{BuildRecord, BuildStatus, Layer, LogEntry, LogLevel, Made};
use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::id::{BuildId, SnapshotId, TeamId, TemplateId};
use shoal_core::store::StoreError;
use shoal_core::template::{Template, TemplateRef};

pub(crate) use self::one::Build;
use self::turns::Turns;
use crate::engine::{Engine, Shared};

/// How many builds of a template are remembered that no tag means.
const BUILDS_KEPT: usize = 20;

/// How many builds of a team are remembered whose template never came to be.
const FAILED_KEPT: usize = 200;

/// How long a build may be announced and not begun: uploads take their time.
const UNBEGUN_MAX: Duration = Duration::from_secs(24 * 3600);

/// How many layers are kept for a team: those that were used last.
const LAYERS_MAX: usize = 128;

/// All builds and layers; few.
#[derive(Debug)]
pub(crate) struct Builds {
    all: RwLock<HashMap<BuildId, Arc<Build>>>,
    layers: RwLock<Vec<Layer>>,
    pub(crate) turns: Turns,
    /// Where a build is, and what tags of a template mean, is read and written by one at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl Builds {
    pub(crate) fn load(builds: Vec<BuildRecord>, layers: Vec<Layer>) -> Self {
        let all = builds.into_iter().map(|b| (b.id, Build::new(b))).collect();
        Self {
            all: RwLock::new(all),
            layers: RwLock::new(layers),
            turns: Turns::default(),
            changing: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn get(&self, id: BuildId) -> Option<Arc<Build>> {
        self.all.read().get(&id).cloned()
    }

    pub(crate) fn insert(&self, record: BuildRecord) -> Arc<Build> {
        let build = Build::new(record.clone());
        self.all.write().insert(record.id, build.clone());
        build
    }

    pub(crate) fn remove(&self, id: BuildId) {
        self.all.write().remove(&id);
    }

    /// Every build, in no order.
    pub(crate) fn records(&self) -> Vec<Arc<BuildRecord>> {
        self.all
            .read()
            .values()
            .map(|build| build.record())
            .collect()
    }

    /// What a build has made, once it is ready.
    pub(crate) fn made(&self, id: BuildId) -> Option<(Arc<BuildRecord>, Made)> {
        let record = self.get(id)?.record();
        let made = record.made.clone()?;
        Some((record, made))
    }

    /// What a team's builds have left under this key, for a build that stands on it from now on.
    fn use_layer(&self, team: TeamId, key: &str, by: &Build, at: Timestamp) -> Option<Layer> {
        let mut layers = self.layers.write();
        let mut all = layers.iter_mut();
        let layer = all.find(|l| l.team == team && l.key == key)?;
        layer.used_at = at;
        // Before another can drop it.
        by.hold(layer.snapshot.id);
        Some(layer.clone())
    }

    /// Every snapshot that a build or a layer needs.
    pub(crate) fn snapshots(&self) -> HashSet<SnapshotId> {
        let mut needed = HashSet::new();
        for build in self.all.read().values() {
            needed.extend(build.record().made.as_ref().map(|made| made.snapshot.id));
            needed.extend(build.held());
        }
        needed.extend(self.layers.read().iter().map(|layer| layer.snapshot.id));
        needed
    }
}

impl Shared {
    /// Writes the next value of a build, and lets it be seen. One that was forgotten stays so. By
    /// whoever has [`Builds::changing`].
    pub(crate) async fn put_build(
        &self,
        build: &Build,
        next: BuildRecord,
    ) -> Result<(), StoreError> {
        if self.builds.get(next.id).is_none() {
            return Ok(());
        }
        let ended = next.status.is_final();
        let log = ended.then(|| build.said());
        self.store.put_build(next.clone(), log).await?;
        build.show(next);
        if ended {
            // Whoever wants it reads it from the store.
            build.forget_said();
        }
        Ok(())
    }

    /// Notes whether other teams may use what a build is the first of. By whoever has
    /// [`Builds::changing`].
    pub(crate) async fn publish_build(&self, id: BuildId, public: bool) -> Result<(), StoreError> {
        let Some(build) = self.builds.get(id) else {
            return Ok(());
        };
        let next = BuildRecord {
            public,
            ..build.record().as_ref().clone()
        };
        // The log of one that has ended stays as it is.
        self.store.put_build(next.clone(), None).await?;
        build.show(next);
        Ok(())
    }

    /// What a team's builds have left under this key, for a build that stands on it from now on.
    pub(crate) async fn layer_for(&self, build: &Build, team: TeamId, key: &str) -> Option<Layer> {
        let now = self.clock.now();
        let layer = self.builds.use_layer(team, key, build, now)?;
        if let Err(error) = self.store.put_layer(layer.clone()).await {
            tracing::warn!(error = %Chain(&error), "the use of a layer is not noted");
        }
        Some(layer)
    }

    /// Lets go of what a build that has ended has held.
    pub(crate) async fn release_held(&self, build: &Build) {
        let held = build.let_go();
        self.release_snapshots(held).await;
    }

    /// Keeps a layer; the one that was not used for longest goes when there are too many.
    pub(crate) async fn keep_layer(&self, layer: Layer) -> Result<(), StoreError> {
        self.store.put_layer(layer.clone()).await?;
        let dropped: Vec<Layer> = {
            let mut layers = self.builds.layers.write();
            let same = |l: &Layer| l.team == layer.team && l.key == layer.key;
            let mut dropped: Vec<Layer> = layers.extract_if(.., |l| same(l)).collect();
            layers.push(layer.clone());
            let of_team = layers.iter().filter(|l| l.team == layer.team);
            if of_team.clone().count() > LAYERS_MAX
                && let Some(oldest) = of_team.min_by_key(|l| l.used_at).map(|l| l.key.clone())
            {
                dropped.extend(layers.extract_if(.., |l| l.team == layer.team && l.key == oldest));
            }
            dropped
        };
        for gone in &dropped {
            if gone.key != layer.key {
                self.store.delete_layer(gone.team, &gone.key).await?;
            }
        }
        let gone = dropped.iter().map(|layer| layer.snapshot.id);
        self.release_snapshots(gone.collect()).await;
        Ok(())
    }

    /// Forgets layers whose files are not there any more.
    pub(crate) async fn drop_layers_without(
        &self,
        there: impl Fn(SnapshotId) -> bool + Send,
    ) -> Result<(), StoreError> {
        let lost: Vec<Layer> = {
            let mut layers = self.builds.layers.write();
            layers.extract_if(.., |l| !there(l.snapshot.id)).collect()
        };
        for layer in lost {
            self.store.delete_layer(layer.team, &layer.key).await?;
        }
        Ok(())
    }

    /// Removes the data of those of these snapshots that no build and no layer needs any more.
    pub(crate) async fn release_snapshots(&self, ids: Vec<SnapshotId>) {
        for id in ids {
            if self.builds.snapshots().contains(&id) {
                continue;
            }
            if let Err(error) = self.driver.remove_snapshot(id).await {
                tracing::warn!(snapshot.id = %id, error = %Chain(&error), "the data of a build stay until the next start");
            }
        }
    }

    /// Forgets what builds of a template have made that no tag means any more, and all but the latest
    /// of its builds that have nothing. By whoever has [`Builds::changing`]; returns the snapshots to
    /// be released when he has not.
    pub(crate) async fn prune_builds(
        &self,
        template: &Template,
    ) -> Result<Vec<SnapshotId>, StoreError> {
        let meant = |build: BuildId| template.tags.values().any(|tagged| tagged.build == build);
        let mut builds = self.builds.records();
        builds.retain(|build| build.template == template.id && build.status.is_final());
        builds.retain(|build| !meant(build.id));
        // By their ends: whoever waits for the one that has just ended finds it.
        builds.sort_by_key(|build| std::cmp::Reverse(build.updated_at));
        let mut dropped = Vec::new();
        for (place, record) in builds.iter().enumerate() {
            dropped.extend(record.made.as_ref().map(|made| made.snapshot.id));
            if place >= BUILDS_KEPT {
                self.forget_build(record).await?;
            } else if record.made.is_some()
                && let Some(build) = self.builds.get(record.id)
            {
                let without = BuildRecord {
                    made: None,
                    ..record.as_ref().clone()
                };
                self.store.put_build(without.clone(), None).await?;
                build.show(without);
            }
        }
        Ok(dropped)
    }

    async fn forget_build(&self, record: &BuildRecord) -> Result<(), StoreError> {
        self.store.delete_build(record.id).await?;
        self.builds.remove(record.id);
        Ok(())
    }

    /// Forgets builds of a team that were announced so long ago that nobody will begin them, and all
    /// but the latest of those that have failed without a template. By whoever has
    /// [`Builds::changing`].
    pub(crate) async fn forget_old_builds(&self, team: TeamId) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut builds = self.builds.records();
        builds.retain(|build| build.team == team);
        builds.sort_by_key(|build| std::cmp::Reverse(build.updated_at));
        let mut failed = 0;
        for record in builds {
            let old = match record.status {
                BuildStatus::Waiting => record.created_at + UNBEGUN_MAX <= now,
                BuildStatus::Error if !self.templates.has(&record.template) => {
                    failed += 1;
                    failed > FAILED_KEPT
                }
                _ => false,
            };
            if old {
                self.forget_build(&record).await?;
            }
        }
        Ok(())
    }

    /// Forgets every build of a template, with what they have made. By whoever has
    /// [`Builds::changing`]; returns the snapshots to be released when he has not.
    pub(crate) async fn forget_builds(
        &self,
        template: &TemplateId,
    ) -> Result<Vec<SnapshotId>, StoreError> {
        let mut dropped = Vec::new();
        for record in self.builds.records() {
            if record.template != *template {
                continue;
            }
            if let Some(build) = self.builds.get(record.id) {
                build.cancelled.send_replace(true);
            }
            self.forget_build(&record).await?;
            dropped.extend(record.made.as_ref().map(|made| made.snapshot.id));
        }
        Ok(dropped)
    }
}

impl Engine {
    /// The builds of a template, the newest first.
    #[must_use]
    pub fn builds_of(&self, template: &TemplateId) -> Vec<Arc<BuildRecord>> {
        let mut builds = self.shared.builds.records();
        builds.retain(|build| build.template == *template);
        builds.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id)));
        builds
    }

    /// The latest build of each template of a team, or of the installation, that none has finished
    /// yet, the newest first.
    #[must_use]
    pub fn templates_to_come(&self, principal: &Principal) -> Vec<Arc<BuildRecord>> {
        let mut builds = self.shared.builds.records();
        builds.retain(|build| {
            let visible = build.team == principal.team || build.stock;
            visible && !self.shared.templates.has(&build.template)
        });
        builds.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id)));
        let mut seen = HashSet::new();
        builds.retain(|build| seen.insert(build.template.clone()));
        builds
    }

    /// The latest build of a template to come that is meant by this name or id. In a namespace that is
    /// the caller's own.
    #[must_use]
    pub fn template_to_come(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Option<Arc<BuildRecord>> {
        let (name, namespace) = (reference.name.as_str(), reference.namespace.as_deref());
        let in_namespace = |build: &BuildRecord| {
            namespace.is_none_or(|slug| slug == principal.slug.as_str() && !build.stock)
        };
        let mut coming = self.templates_to_come(principal).into_iter();
        coming.find(|build| {
            let named = build.template.as_str() == name || build.name.as_str() == name;
            named && in_namespace(build)
        })
    }

    /// A build of a team's own, or of the installation's.
    #[must_use]
    pub fn build(&self, principal: &Principal, id: BuildId) -> Option<Arc<BuildRecord>> {
        let record = self.shared.builds.get(id)?.record();
        (record.team == principal.team || record.stock).then_some(record)
    }

    /// What a build has said: its lines of this level and above.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn build_log(
        &self,
        id: BuildId,
        level: LogLevel,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let mut log = Vec::new();
        if let Some(build) = self.shared.builds.get(id) {
            log = build.said();
            // In this order: it ends between the two, or not.
            if log.is_empty() && build.record().status.is_final() {
                log = self.shared.store.build_log(id).await?;
            }
        }
        log.retain(|entry| entry.level >= level);
        Ok(log)
    }

    /// How many builds of a team are at this status.
    pub(crate) fn builds_at(&self, team: TeamId, status: BuildStatus) -> usize {
        let builds = self.shared.builds.records();
        builds
            .iter()
            .filter(|build| build.team == team && build.status == status)
            .count()
    }
}
