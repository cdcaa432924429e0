//! The records of builds: their states, their logs, and the layers of the build cache.

mod build;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use shoal_core::auth::Principal;
use shoal_core::build::{
    BuildLayer, BuildLogEntry, BuildOutput, BuildRecord, BuildStatus, LogLevel,
};
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::detail::Chain;
use shoal_core::id::{BuildId, SnapshotId, TeamId, TemplateId};
use shoal_core::store::{BuildStore, StoreError};
use shoal_core::template::Template;

pub(crate) use self::build::Build;
use crate::drivers::Drivers;

/// How many builds of a template are remembered that no tag means.
const BUILDS_KEPT: usize = 20;

/// How many builds of a team are remembered whose template never came to be.
const FAILED_KEPT: usize = 200;

/// How long an announced build may wait for its start: uploads take time.
const UNBEGUN_MAX: Duration = Duration::from_secs(24 * 3600);

/// How many layers are kept for a team: those that were used last.
const LAYERS_MAX: usize = 128;

/// All builds and layers; few.
pub(crate) struct BuildRecords {
    store: Arc<dyn BuildStore>,
    drivers: Arc<Drivers>,
    clock: Arc<dyn Clock>,
    all: RwLock<HashMap<BuildId, Arc<Build>>>,
    layers: RwLock<Vec<BuildLayer>>,
    /// Held by the one caller that reads and writes the states of builds and the tags of templates.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl BuildRecords {
    pub(crate) async fn load(
        store: Arc<dyn BuildStore>,
        drivers: Arc<Drivers>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let all = store.builds().await?.into_iter();
        let all = all.map(|build| (build.id, Build::new(build))).collect();
        let layers = store.layers().await?;
        Ok(Self {
            store,
            drivers,
            clock,
            all: RwLock::new(all),
            layers: RwLock::new(layers),
            changing: tokio::sync::Mutex::new(()),
        })
    }

    pub(crate) fn get(&self, id: BuildId) -> Option<Arc<Build>> {
        self.all.read().get(&id).cloned()
    }

    /// Writes a new build.
    pub(crate) async fn insert(&self, record: BuildRecord) -> Result<Arc<Build>, StoreError> {
        self.store.put_build(record.clone(), None).await?;
        let build = Build::new(record.clone());
        self.all.write().insert(record.id, build.clone());
        Ok(build)
    }

    /// Every build, in no order.
    pub(crate) fn records(&self) -> Vec<Arc<BuildRecord>> {
        self.all
            .read()
            .values()
            .map(|build| build.record())
            .collect()
    }

    /// The output of a build, once it is ready.
    pub(crate) fn made(&self, id: BuildId) -> Option<(Arc<BuildRecord>, BuildOutput)> {
        let record = self.get(id)?.record();
        let made = record.made.clone()?;
        Some((record, made))
    }

    /// The team's layer with this key, held for the build.
    fn use_layer(&self, team: TeamId, key: &str, by: &Build, at: Timestamp) -> Option<BuildLayer> {
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

impl BuildRecords {
    /// Writes the next value of a build and publishes it. A forgotten build stays forgotten. The caller
    /// holds [`BuildRecords::changing`].
    pub(crate) async fn put(&self, build: &Build, next: BuildRecord) -> Result<(), StoreError> {
        if self.get(next.id).is_none() {
            return Ok(());
        }
        let ended = next.status.is_final();
        let log = ended.then(|| build.said());
        self.store.put_build(next.clone(), log).await?;
        build.show(next);
        if ended {
            // From now on the log is read from the store.
            build.forget_said();
        }
        Ok(())
    }

    /// Sets whether other teams may use the template that a build will create. The caller holds
    /// [`BuildRecords::changing`].
    pub(crate) async fn publish(&self, id: BuildId, public: bool) -> Result<(), StoreError> {
        let Some(build) = self.get(id) else {
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

    /// The team's layer with this key, which the build uses from now on.
    pub(crate) async fn layer_for(
        &self,
        build: &Build,
        team: TeamId,
        key: &str,
    ) -> Option<BuildLayer> {
        let now = self.clock.now();
        let layer = self.use_layer(team, key, build, now)?;
        if let Err(error) = self.store.put_layer(layer.clone()).await {
            tracing::warn!(error = %Chain(&error), "the use of a layer is not noted");
        }
        Some(layer)
    }

    /// Releases the snapshots that an ended build held.
    pub(crate) async fn release_held(&self, build: &Build) {
        let held = build.let_go();
        self.release(held).await;
    }

    /// Keeps a layer, and drops the least recently used one when there are too many.
    pub(crate) async fn keep_layer(&self, layer: BuildLayer) -> Result<(), StoreError> {
        self.store.put_layer(layer.clone()).await?;
        let dropped: Vec<BuildLayer> = {
            let mut layers = self.layers.write();
            let same = |l: &BuildLayer| l.team == layer.team && l.key == layer.key;
            let mut dropped: Vec<BuildLayer> = layers.extract_if(.., |l| same(l)).collect();
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
        self.release(gone.collect()).await;
        Ok(())
    }

    /// Forgets layers whose files no longer exist.
    pub(crate) async fn drop_layers_without(
        &self,
        there: impl Fn(SnapshotId) -> bool + Send,
    ) -> Result<(), StoreError> {
        let lost: Vec<BuildLayer> = {
            let mut layers = self.layers.write();
            layers.extract_if(.., |l| !there(l.snapshot.id)).collect()
        };
        for layer in lost {
            self.store.delete_layer(layer.team, &layer.key).await?;
        }
        Ok(())
    }

    /// Removes the data of these snapshots, except where a build or a layer still needs it.
    pub(crate) async fn release(&self, ids: Vec<SnapshotId>) {
        for id in ids {
            if self.snapshots().contains(&id) {
                continue;
            }
            if let Err(error) = self.drivers.remove_snapshot(id).await {
                tracing::warn!(snapshot.id = %id, error = %Chain(&error), "the data of a build stay until the next start");
            }
        }
    }

    /// Drops the output of builds that no tag refers to, and forgets all but the latest of those. The
    /// caller holds [`BuildRecords::changing`], and releases the returned snapshots after it.
    pub(crate) async fn prune(&self, template: &Template) -> Result<Vec<SnapshotId>, StoreError> {
        let meant = |build: BuildId| template.tags.values().any(|tagged| tagged.build == build);
        let mut builds = self.records();
        builds.retain(|build| build.template == template.id && build.status.is_final());
        builds.retain(|build| !meant(build.id));
        // By their ends: a client that waits for the build that has just ended finds it.
        builds.sort_by_key(|build| std::cmp::Reverse(build.updated_at));
        let mut dropped = Vec::new();
        for (place, record) in builds.iter().enumerate() {
            dropped.extend(record.made.as_ref().map(|made| made.snapshot.id));
            if place >= BUILDS_KEPT {
                self.forget_build(record).await?;
            } else if record.made.is_some()
                && let Some(build) = self.get(record.id)
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

    /// The builds of a template, the newest first.
    pub(crate) fn of_template(&self, template: &TemplateId) -> Vec<Arc<BuildRecord>> {
        let mut builds = self.records();
        builds.retain(|build| build.template == *template);
        builds.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id)));
        builds
    }

    /// A build of the team of `principal`, or of the installation.
    pub(crate) fn visible(&self, principal: &Principal, id: BuildId) -> Option<Arc<BuildRecord>> {
        let record = self.get(id)?.record();
        (record.team == principal.team || record.builtin).then_some(record)
    }

    /// The log of a build: its lines of this level and above.
    pub(crate) async fn log(
        &self,
        id: BuildId,
        level: LogLevel,
    ) -> Result<Vec<BuildLogEntry>, StoreError> {
        let mut log = Vec::new();
        if let Some(build) = self.get(id) {
            log = build.said();
            // In this order: a build that ends between the two is read from the store.
            if log.is_empty() && build.record().status.is_final() {
                log = self.store.build_log(id).await?;
            }
        }
        log.retain(|entry| entry.level >= level);
        Ok(log)
    }

    /// How many builds of a team have this status.
    pub(crate) fn count(&self, team: TeamId, status: BuildStatus) -> usize {
        let builds = self.records();
        let counted = builds
            .iter()
            .filter(|build| build.team == team && build.status == status);
        counted.count()
    }

    async fn forget_build(&self, record: &BuildRecord) -> Result<(), StoreError> {
        self.store.delete_build(record.id).await?;
        self.all.write().remove(&record.id);
        Ok(())
    }

    /// Forgets builds of a team that were announced long ago and never started, and all but the latest
    /// failed ones that have no template. The caller holds [`BuildRecords::changing`].
    pub(crate) async fn forget_old(
        &self,
        team: TeamId,
        is_template: impl Fn(&TemplateId) -> bool + Send,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut builds = self.records();
        builds.retain(|build| build.team == team);
        builds.sort_by_key(|build| std::cmp::Reverse(build.updated_at));
        let mut failed = 0;
        for record in builds {
            let old = match record.status {
                BuildStatus::Waiting => record.created_at + UNBEGUN_MAX <= now,
                BuildStatus::Error if !is_template(&record.template) => {
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

    /// Forgets every build of a template, with its output. The caller holds
    /// [`BuildRecords::changing`], and releases the returned snapshots after it.
    pub(crate) async fn forget_all(
        &self,
        template: &TemplateId,
    ) -> Result<Vec<SnapshotId>, StoreError> {
        let mut dropped = Vec::new();
        for record in self.records() {
            if record.template != *template {
                continue;
            }
            if let Some(build) = self.get(record.id) {
                build.cancelled.send_replace(true);
            }
            self.forget_build(&record).await?;
            dropped.extend(record.made.as_ref().map(|made| made.snapshot.id));
        }
        Ok(dropped)
    }
}
