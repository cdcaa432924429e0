//! Builds: what there is of them, what they have said, and the layers that they stand on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use shoal_core::auth::Principal;
use shoal_core::build::{BuildRecord, BuildStatus, Layer, LogEntry, LogLevel, Made, Part};
use shoal_core::clock::Timestamp;
use shoal_core::id::{BuildId, SnapshotId, TeamId, TemplateId};
use shoal_core::store::StoreError;
use shoal_core::template::Template;
use tokio::sync::{Semaphore, watch};

use crate::engine::{Engine, Shared};

/// How many builds are carried out at once; the others wait for their turn.
const AT_ONCE: usize = 2;

/// How many lines are kept of what a build says.
const LINES_MAX: usize = 10_000;

/// How many bytes of a line are kept.
const LINE_MAX: usize = 4 << 10;

/// How many builds of a template are remembered that no tag means.
const BUILDS_KEPT: usize = 20;

/// How long a build may be announced and not begun: uploads take their time.
const UNBEGUN_MAX: Duration = Duration::from_secs(24 * 3600);

/// How many layers are kept for a team: those that were used last.
const LAYERS_MAX: usize = 128;

/// A build with what it says while it is carried out.
#[derive(Debug)]
pub(crate) struct Build {
    record: RwLock<Arc<BuildRecord>>,
    log: Mutex<Vec<LogEntry>>,
    /// Turns true when it is to end.
    pub(crate) cancelled: watch::Sender<bool>,
    /// Turns true when nothing more will happen.
    ended: watch::Sender<bool>,
}

impl Build {
    fn new(record: BuildRecord) -> Arc<Self> {
        Arc::new(Self {
            record: RwLock::new(Arc::new(record)),
            log: Mutex::default(),
            cancelled: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        })
    }

    pub(crate) fn record(&self) -> Arc<BuildRecord> {
        self.record.read().clone()
    }

    /// Which part spoke last.
    pub(crate) fn last_part(&self) -> Option<Part> {
        self.log.lock().last().and_then(|entry| entry.part)
    }

    /// Says that nothing more will happen: its tags mean what it has made.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Ends when the build has.
    pub(crate) async fn ended(&self) {
        // The sender is here: it cannot go.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Notes a line; what is too long is cut, and what is too much is said once.
    pub(crate) fn say(&self, at: Timestamp, level: LogLevel, part: Option<Part>, message: &str) {
        let mut log = self.log.lock();
        let message = match log.len() {
            // Why it failed is kept in any case.
            full if full >= LINES_MAX && level < LogLevel::Error => {
                if full > LINES_MAX {
                    return;
                }
                format!("(more than {LINES_MAX} lines are not kept)")
            }
            _ => cut(message),
        };
        log.push(LogEntry {
            at,
            level,
            message,
            part,
        });
    }
}

/// A line within the bound.
fn cut(message: &str) -> String {
    let mut end = message.len().min(LINE_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned()
}

/// All builds and layers; few.
#[derive(Debug)]
pub(crate) struct Builds {
    all: RwLock<HashMap<BuildId, Arc<Build>>>,
    layers: RwLock<Vec<Layer>>,
    pub(crate) turns: Semaphore,
    /// What tags of a template mean is read and written by one at a time.
    pub(crate) tagging: tokio::sync::Mutex<()>,
}

impl Builds {
    pub(crate) fn load(builds: Vec<BuildRecord>, layers: Vec<Layer>) -> Self {
        let all = builds.into_iter().map(|b| (b.id, Build::new(b))).collect();
        Self {
            all: RwLock::new(all),
            layers: RwLock::new(layers),
            turns: Semaphore::new(AT_ONCE),
            tagging: tokio::sync::Mutex::new(()),
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

    /// What a team's builds have left under this key.
    pub(crate) fn layer(&self, team: TeamId, key: &str) -> Option<Layer> {
        let layers = self.layers.read();
        let same = layers.iter().find(|l| l.team == team && l.key == key);
        same.cloned()
    }

    /// Every snapshot that a build or a layer needs.
    pub(crate) fn snapshots(&self) -> Vec<SnapshotId> {
        let made = self.records().into_iter();
        let made = made.filter_map(|record| Some(record.made.as_ref()?.snapshot.id));
        let layers = self.layers.read();
        made.chain(layers.iter().map(|l| l.snapshot.id)).collect()
    }
}

impl Shared {
    /// Writes the next value of a build, and lets it be seen. One that was forgotten stays so.
    pub(crate) async fn put_build(
        &self,
        build: &Build,
        next: BuildRecord,
    ) -> Result<(), StoreError> {
        if self.builds.get(next.id).is_none() {
            return Ok(());
        }
        let log = next.status.is_final().then(|| build.log.lock().clone());
        self.store.put_build(next.clone(), log).await?;
        *build.record.write() = Arc::new(next);
        Ok(())
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
        for gone in dropped {
            if gone.key != layer.key {
                self.store.delete_layer(gone.team, &gone.key).await?;
            }
            self.release_snapshot(gone.snapshot.id).await;
        }
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

    /// Removes the data of a snapshot that no build and no layer needs any more.
    pub(crate) async fn release_snapshot(&self, id: SnapshotId) {
        if self.builds.snapshots().contains(&id) {
            return;
        }
        if let Err(error) = self.driver.remove_snapshot(id).await {
            tracing::warn!(snapshot.id = %id, %error, "the data of a build stay until the next start");
        }
    }

    /// Drops what builds of a template have made that no tag means any more, and all but the latest
    /// of its builds that have nothing.
    pub(crate) async fn prune_builds(&self, template: &Template) -> Result<(), StoreError> {
        let meant = |build: BuildId| template.tags.values().any(|tagged| tagged.build == build);
        let mut builds = self.builds.records();
        builds.retain(|build| build.template == template.id && build.status.is_final());
        builds.retain(|build| !meant(build.id));
        builds.sort_by_key(|build| std::cmp::Reverse(build.created_at));
        for (place, record) in builds.iter().enumerate() {
            if place >= BUILDS_KEPT {
                self.store.delete_build(record.id).await?;
                self.builds.remove(record.id);
            } else if record.made.is_some()
                && let Some(build) = self.builds.get(record.id)
            {
                let dropped = BuildRecord {
                    made: None,
                    ..record.as_ref().clone()
                };
                self.store.put_build(dropped.clone(), None).await?;
                *build.record.write() = Arc::new(dropped);
            }
            if let Some(made) = &record.made {
                self.release_snapshot(made.snapshot.id).await;
            }
        }
        Ok(())
    }

    /// Forgets builds of a team that were announced so long ago that nobody will begin them.
    pub(crate) async fn forget_unbegun(&self, team: TeamId) -> Result<(), StoreError> {
        let now = self.clock.now();
        for record in self.builds.records() {
            let waits = record.team == team && record.status == BuildStatus::Waiting;
            if waits && record.created_at + UNBEGUN_MAX <= now {
                self.store.delete_build(record.id).await?;
                self.builds.remove(record.id);
            }
        }
        Ok(())
    }

    /// Forgets every build of a template, with what they have made.
    pub(crate) async fn forget_builds(&self, template: &TemplateId) -> Result<(), StoreError> {
        for record in self.builds.records() {
            if record.template != *template {
                continue;
            }
            if let Some(build) = self.builds.get(record.id) {
                build.cancelled.send_replace(true);
            }
            self.store.delete_build(record.id).await?;
            self.builds.remove(record.id);
            if let Some(made) = &record.made {
                self.release_snapshot(made.snapshot.id).await;
            }
        }
        Ok(())
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
        let mut seen = std::collections::HashSet::new();
        builds.retain(|build| seen.insert(build.template.clone()));
        builds
    }

    /// A build of a team's own, or of the installation's.
    #[must_use]
    pub fn build(
        &self,
        principal: &Principal,
        template: &TemplateId,
        id: BuildId,
    ) -> Option<Arc<BuildRecord>> {
        let record = self.shared.builds.get(id)?.record();
        let visible = record.team == principal.team || record.stock;
        (visible && record.template == *template).then_some(record)
    }

    /// What a build has said: its lines of this level and above, from `offset` on.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn build_log(
        &self,
        build: &BuildRecord,
        level: LogLevel,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let live = self.shared.builds.get(build.id);
        let mut log = live
            .map(|build| build.log.lock().clone())
            .unwrap_or_default();
        if log.is_empty() && build.status.is_final() {
            log = self.shared.store.build_log(build.id).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_between_characters() {
        let long = "ä".repeat(LINE_MAX);
        assert!(cut(&long).len() <= LINE_MAX);
        assert_eq!(cut("short"), "short");
    }
}
