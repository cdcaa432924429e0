//! The records of snapshots: which exist, and which one a reference means.

mod names;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shoal_core::auth::Principal;
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::detail::Chain;
use shoal_core::id::{SnapshotId, TeamId, TemplateId};
pub use shoal_core::ports::snapshots::{SnapshotError, SnapshotFilter};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::store::{SnapshotStore, StoreError};
use shoal_core::template::{TemplateName, TemplateRef};
use tokio::sync::Notify;

pub(crate) use self::names::ClaimedName;
pub use self::names::SnapshotNameError;

use self::names::Claims;
use crate::access::Access;
use crate::drivers::Drivers;
use crate::work::Work;
use shoal_core::ports::sandboxes::SandboxError;

/// All snapshots; few, and read at each create.
pub(crate) struct Snapshots {
    store: Arc<dyn SnapshotStore>,
    drivers: Arc<Drivers>,
    clock: Arc<dyn Clock>,
    access: Arc<Access>,
    all: RwLock<Vec<Arc<SnapshotRecord>>>,
    changed: Notify,
    /// Held while the tags of snapshots change.
    changing: tokio::sync::Mutex<()>,
    claims: Claims,
    /// How many are being taken, of each team.
    coming: Arc<Mutex<HashMap<TeamId, usize>>>,
    work: Work,
}

/// The place of a snapshot that is being taken, until it is known itself.
#[derive(Debug)]
pub(crate) struct SnapshotPlace {
    coming: Arc<Mutex<HashMap<TeamId, usize>>>,
    team: TeamId,
}

impl Drop for SnapshotPlace {
    fn drop(&mut self) {
        let mut coming = self.coming.lock();
        if let Some(count) = coming.get_mut(&self.team) {
            *count -= 1;
            if *count == 0 {
                coming.remove(&self.team);
            }
        }
    }
}

impl Snapshots {
    pub(crate) async fn load(
        store: Arc<dyn SnapshotStore>,
        drivers: Arc<Drivers>,
        clock: Arc<dyn Clock>,
        access: Arc<Access>,
        work: Work,
    ) -> Result<Self, StoreError> {
        let all = store.snapshots().await?.into_iter().map(Arc::new).collect();
        Ok(Self {
            store,
            drivers,
            clock,
            access,
            all: RwLock::new(all),
            changed: Notify::new(),
            changing: tokio::sync::Mutex::default(),
            claims: Claims::default(),
            coming: Arc::default(),
            work,
        })
    }

    /// How many snapshots a team keeps.
    pub(crate) fn of_team(&self, team: TeamId) -> usize {
        let all = self.all.read();
        all.iter().filter(|snapshot| snapshot.team == team).count()
    }

    /// Keeps a place for one more of a team. An error is how many it has.
    fn place(&self, team: TeamId, limit: Option<u32>) -> Result<SnapshotPlace, (usize, u32)> {
        let mut coming = self.coming.lock();
        let taken = coming.get(&team).copied().unwrap_or_default();
        let used = self.of_team(team) + taken;
        if let Some(limit) =
            limit.filter(|limit| used >= usize::try_from(*limit).unwrap_or(usize::MAX))
        {
            return Err((used, limit));
        }
        *coming.entry(team).or_default() += 1;
        Ok(SnapshotPlace {
            coming: self.coming.clone(),
            team,
        })
    }

    /// Resolves a name for a team.
    pub(crate) fn called(&self, team: TeamId, name: &TemplateName) -> Option<TemplateId> {
        let all = self.all.read();
        let mut of_team = all.iter().filter(|snapshot| snapshot.team == team);
        let called = of_team.find(|snapshot| snapshot.name.as_ref() == Some(name));
        called.map(|snapshot| snapshot.template.clone())
    }

    /// Every snapshot, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<SnapshotRecord>> {
        self.all.read().clone()
    }

    /// Adds a snapshot, in the place of the one that had its template and tag.
    pub(crate) fn put(&self, snapshot: SnapshotRecord) {
        let mut all = self.all.write();
        all.retain(|known| known.template != snapshot.template || known.tag != snapshot.tag);
        all.push(Arc::new(snapshot));
        drop(all);
        self.changed.notify_one();
    }

    /// Replaces the record of a snapshot.
    fn replace(&self, snapshot: SnapshotRecord) {
        let mut all = self.all.write();
        if let Some(known) = all.iter_mut().find(|known| known.id == snapshot.id) {
            *known = Arc::new(snapshot);
        }
    }

    pub(crate) fn remove(&self, id: SnapshotId) {
        self.all.write().retain(|known| known.id != id);
    }

    /// The one that `reference` means to `principal`; an expired one does not exist.
    pub(crate) fn resolve(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
        now: Timestamp,
    ) -> Option<Arc<SnapshotRecord>> {
        let all = self.all.read();
        all.iter()
            .find(|snapshot| {
                belongs(snapshot, principal, reference)
                    && snapshot.is_meant_by(reference)
                    && !snapshot.is_expired(now)
            })
            .cloned()
    }
}

/// Whether `principal` may give a snapshot this name: its own tenant and namespace.
fn belongs(snapshot: &SnapshotRecord, principal: &Principal, reference: &TemplateRef) -> bool {
    let own = reference
        .namespace
        .as_ref()
        .is_none_or(|slug| slug == principal.slug.as_str());
    snapshot.team == principal.team && own
}

impl Snapshots {
    /// The snapshots of a tenant, the newest first.
    pub(crate) fn list(
        &self,
        principal: &Principal,
        filter: &SnapshotFilter,
    ) -> Vec<Arc<SnapshotRecord>> {
        let now = self.clock.now();
        let mut found = self.all();
        found.retain(|snapshot| {
            let named = filter.named.as_ref().is_none_or(|reference| {
                let any_tag = TemplateRef {
                    tag: Some(
                        reference
                            .tag
                            .clone()
                            .unwrap_or_else(|| snapshot.tag.clone()),
                    ),
                    ..reference.clone()
                };
                belongs(snapshot, principal, reference) && snapshot.is_meant_by(&any_tag)
            });
            snapshot.team == principal.team
                && !snapshot.is_expired(now)
                && named
                && filter
                    .source
                    .as_ref()
                    .is_none_or(|source| *source == snapshot.source)
        });
        found.sort_by(|a, b| {
            let newest = b.created_at.cmp(&a.created_at);
            newest.then_with(|| a.id.to_string().cmp(&b.id.to_string()))
        });
        found
    }

    /// The snapshot that `reference` means.
    ///
    /// # Errors
    /// [`SnapshotError::NotFound`].
    pub(crate) fn find(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<SnapshotRecord>, SnapshotError> {
        let now = self.clock.now();
        let found = self.resolve(principal, reference, now);
        found.ok_or_else(|| SnapshotError::NotFound(reference.clone()))
    }

    /// Gives more tags to the snapshot that `reference` means. Another version of it loses them.
    ///
    /// # Errors
    /// [`SnapshotError::OnlyTag`] when the other version has no other tag.
    pub(crate) async fn add_tags(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
        tags: &[String],
    ) -> Result<SnapshotId, SnapshotError> {
        let _changing = self.changing.lock().await;
        let meant = self.find(principal, reference)?;
        let mut changed = self.losing(&meant, tags)?;
        changed.push(meant.with_tags(tags, self.clock.now()));
        self.store.update_snapshots(changed.clone()).await?;
        for snapshot in changed {
            self.replace(snapshot);
        }
        Ok(meant.id)
    }

    /// The other versions of a snapshot that have one of these tags, without them.
    fn losing(
        &self,
        gains: &SnapshotRecord,
        tags: &[String],
    ) -> Result<Vec<SnapshotRecord>, SnapshotError> {
        let mut losing = Vec::new();
        for other in self.all() {
            let lost = tags.iter().filter(|tag| other.has_tag(tag));
            let lost: Vec<_> = lost.collect();
            if other.template != gains.template || other.id == gains.id || lost.is_empty() {
                continue;
            }
            let mut rest = other.as_ref().clone();
            for tag in lost {
                let without = rest.without_tag(tag);
                rest = without.ok_or_else(|| SnapshotError::OnlyTag(tag.clone()))?;
            }
            losing.push(rest);
        }
        Ok(losing)
    }

    /// Removes the tag that `reference` names, and the snapshot with its last tag. Without a tag, all
    /// versions are removed. Sandboxes that were started from them keep running.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub(crate) async fn delete(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<(), SnapshotError> {
        let filter = SnapshotFilter {
            source: None,
            named: Some(reference.clone()),
        };
        let meant = self.list(principal, &filter);
        if meant.is_empty() {
            return Err(SnapshotError::NotFound(reference.clone()));
        }
        for snapshot in meant {
            self.remove_tag(snapshot.id, reference.tag.as_deref())
                .await?;
        }
        Ok(())
    }

    async fn remove_tag(&self, id: SnapshotId, tag: Option<&str>) -> Result<(), SnapshotError> {
        let changing = self.changing.lock().await;
        // As it is now: other tags may have changed since it was listed.
        let known = self.all().into_iter().find(|known| known.id == id);
        let rest = known.and_then(|known| known.without_tag(tag?));
        let Some(rest) = rest else {
            drop(changing);
            return self.forget(id).await;
        };
        self.store.update_snapshots(vec![rest.clone()]).await?;
        self.replace(rest);
        Ok(())
    }

    /// Keeps a place for one more snapshot of a team.
    pub(crate) fn reserve(&self, team: TeamId) -> Result<SnapshotPlace, SandboxError> {
        let limit = self.access.limits_of(team).snapshots;
        let place = self.place(team, limit);
        place.map_err(|(used, limit)| SandboxError::Snapshots { used, limit })
    }

    /// Notes a snapshot whose data are there, in the place of the one that it replaces.
    pub(crate) async fn keep(&self, snapshot: SnapshotRecord) -> Result<(), StoreError> {
        let changing = self.changing.lock().await;
        // A version that only loses a tag stays. One that has no other is replaced.
        let tag = std::slice::from_ref(&snapshot.tag);
        let losing = self.losing(&snapshot, tag).unwrap_or_default();
        let before = self
            .store
            .put_snapshot(snapshot.clone(), losing.clone())
            .await?;
        for other in losing {
            self.replace(other);
        }
        self.put(snapshot);
        drop(changing);
        if let Some(before) = before {
            let drivers = self.drivers.clone();
            // The driver waits for starts from it, which must not delay the sandbox that was saved.
            self.work.spawn(async move {
                if let Err(error) = drivers.remove_snapshot(before).await {
                    tracing::warn!(snapshot.id = %before, error = %Chain(&error), "a replaced snapshot stays until the next start");
                }
            });
        }
        Ok(())
    }

    /// Removes a snapshot: first from what users see, so that half of one is never met.
    pub(crate) async fn forget(&self, id: SnapshotId) -> Result<(), SnapshotError> {
        self.store.delete_snapshot(id).await?;
        self.remove(id);
        // The next start clears the rest from the disk.
        self.drivers.remove_snapshot(id).await?;
        Ok(())
    }

    /// Removes each snapshot when its time has come, forever.
    pub(crate) async fn expire_for_ever(&self) {
        loop {
            let changed = self.changed.notified();
            let next = self
                .all()
                .into_iter()
                .filter_map(|snapshot| Some((snapshot.expires_at?, snapshot.id)))
                .min_by_key(|(at, _)| *at);
            let Some((at, id)) = next else {
                changed.await;
                continue;
            };
            tokio::select! {
                () = changed => {}
                () = self.clock.sleep_until(at) => {
                    if let Err(error) = self.forget(id).await {
                        tracing::error!(snapshot.id = %id, error = %Chain(&error), "an expired snapshot stays on the disk");
                        // Hide it from users all the same.
                        self.remove(id);
                    }
                }
            }
        }
    }
}
