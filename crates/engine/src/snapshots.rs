//! Snapshots: what there is, and which one a reference means.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::driver::{DriverError, ExportOrder, ImportOrder, Imported};
use shoal_core::id::{SnapshotId, TeamId, TemplateId};
pub use shoal_core::ports::snapshots::{SnapshotError, SnapshotFilter};
use shoal_core::snapshot::{Saved, SnapshotRecord};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, TemplateName, TemplateRef};
use tokio::sync::Notify;

use crate::claimed_name::{ClaimedName, Claims};
use crate::engine::{Engine, SandboxError, Shared};
use crate::entropy::{self, NoEntropy};
use crate::exported::for_others;

/// All snapshots; few, and read at each create.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    all: RwLock<Vec<Arc<SnapshotRecord>>>,
    changed: Notify,
    claims: Claims,
    /// How many are being taken, of each team.
    coming: Arc<Mutex<HashMap<TeamId, usize>>>,
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
    pub(crate) fn load(snapshots: Vec<SnapshotRecord>) -> Self {
        Self {
            all: RwLock::new(snapshots.into_iter().map(Arc::new).collect()),
            changed: Notify::new(),
            claims: Claims::default(),
            coming: Arc::default(),
        }
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

    /// The names that are being given.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// What a name means to a team.
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

    pub(crate) fn remove(&self, id: SnapshotId) {
        self.all.write().retain(|known| known.id != id);
    }

    /// The one that `reference` means to `principal`; an expired one is there no more.
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

/// Whether a snapshot is one that `principal` may name like that: his tenant's, and its namespace.
fn belongs(snapshot: &SnapshotRecord, principal: &Principal, reference: &TemplateRef) -> bool {
    let own = reference
        .namespace
        .as_ref()
        .is_none_or(|slug| slug == principal.slug.as_str());
    snapshot.team == principal.team && own
}

impl Engine {
    /// The snapshots of a tenant, the newest first.
    #[must_use]
    pub fn snapshots(
        &self,
        principal: &Principal,
        filter: &SnapshotFilter,
    ) -> Vec<Arc<SnapshotRecord>> {
        let now = self.shared.clock.now();
        let mut found = self.shared.snapshots.all();
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
    pub fn resolve_snapshot(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<SnapshotRecord>, SnapshotError> {
        let now = self.shared.clock.now();
        let found = self.shared.snapshots.resolve(principal, reference, now);
        found.ok_or_else(|| SnapshotError::NotFound(reference.clone()))
    }

    /// Removes a snapshot: what `reference` means, or all its tags when it names none. Sandboxes
    /// that were started from it go on.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub async fn delete_snapshot(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<(), SnapshotError> {
        let filter = SnapshotFilter {
            source: None,
            named: Some(reference.clone()),
        };
        let meant = self.snapshots(principal, &filter);
        if meant.is_empty() {
            return Err(SnapshotError::NotFound(reference.clone()));
        }
        for snapshot in meant {
            self.shared.forget_snapshot(snapshot.id).await?;
        }
        Ok(())
    }
}

impl Engine {
    /// Writes a snapshot to a new file of the server's machine, to be imported on another one.
    /// Returns how many bytes it has.
    ///
    /// # Errors
    /// See [`SnapshotError`]; there is no file then.
    pub async fn export_snapshot(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
        target: PathBuf,
    ) -> Result<u64, SnapshotError> {
        let snapshot = self.resolve_snapshot(principal, reference)?;
        self.shared.refuse_live_tokens(&snapshot)?;
        let noted = for_others(snapshot.as_ref().clone());
        let note = serde_json::to_string(&noted).map_err(StoreError::failed)?;
        let order = ExportOrder {
            snapshot: snapshot.id,
            target,
            note,
            key: self.shared.export_key(),
        };
        Ok(self.shared.driver.export_snapshot(order).await?)
    }

    /// Takes in a snapshot that was exported, as the tenant's own, under `name` or the one that it
    /// had. With `trust` it may be one that another installation exported: its memory goes into the
    /// runtime, and its programs run, as whoever made the file wrote them.
    ///
    /// # Errors
    /// See [`SnapshotError`]; nothing is left of it then.
    pub async fn import_snapshot(
        &self,
        principal: &Principal,
        source: PathBuf,
        name: Option<TemplateRef>,
        trust: bool,
    ) -> Result<SnapshotRecord, SnapshotError> {
        let shared = &self.shared;
        let _place = shared
            .room_for_snapshot(principal.team)
            .map_err(SnapshotError::Full)?;
        let id = SnapshotId::from_entropy(entropy::bytes()?);
        // What it shall be called is known before it is copied, which takes its time.
        let claimed = match &name {
            Some(name) => Some(self.claim_name(principal, name, fresh_template()?).await?),
            None => None,
        };
        let order = ImportOrder {
            source,
            snapshot: id,
            key: shared.export_key(),
            trust,
            max_bytes: shared.config.import_max,
        };
        let Imported { saved, note } = shared.driver.import_snapshot(order).await?;
        let noted: Result<SnapshotRecord, _> = serde_json::from_str(&note);
        let adopted = match noted {
            Ok(noted) => {
                self.adopt(principal, id, saved, for_others(noted), name.zip(claimed))
                    .await
            }
            Err(error) => Err(DriverError::Unusable(error.to_string()).into()),
        };
        if adopted.is_err() {
            // Nobody knows of it: a start would clear it too.
            let _ = shared.driver.remove_snapshot(id).await;
        }
        adopted
    }

    async fn adopt(
        &self,
        principal: &Principal,
        id: SnapshotId,
        saved: Saved,
        noted: SnapshotRecord,
        called: Option<(TemplateRef, ClaimedName)>,
    ) -> Result<SnapshotRecord, SnapshotError> {
        let shared = &self.shared;
        let (name, tag, claimed) = match (called, noted.name.clone()) {
            (Some((TemplateRef { name, tag, .. }, claimed)), _) => {
                let tag = tag.unwrap_or_else(|| DEFAULT_TAG.to_owned());
                (Some(name), tag, claimed)
            }
            (None, Some(name)) => {
                let own = TemplateRef {
                    namespace: None,
                    name: name.clone(),
                    tag: None,
                };
                let claimed = self.claim_name(principal, &own, fresh_template()?).await?;
                (Some(name), noted.tag.clone(), claimed)
            }
            (None, None) => {
                let claimed = ClaimedName::without_name(fresh_template()?);
                (None, noted.tag.clone(), claimed)
            }
        };
        let snapshot = SnapshotRecord {
            id,
            template: claimed.template().clone(),
            tag,
            name,
            team: principal.team,
            saved,
            created_at: shared.clock.now(),
            expires_at: None,
            ..noted
        };
        shared.keep_snapshot(snapshot.clone()).await?;
        Ok(snapshot)
    }
}

/// What a name may come to mean.
fn fresh_template() -> Result<TemplateId, NoEntropy> {
    Ok(TemplateId::from_entropy(entropy::bytes()?))
}

impl Shared {
    /// Keeps a place for one more snapshot of a team.
    pub(crate) fn room_for_snapshot(&self, team: TeamId) -> Result<SnapshotPlace, SandboxError> {
        let limit = self.limits_of(team).snapshots;
        let place = self.snapshots.place(team, limit);
        place.map_err(|(used, limit)| SandboxError::Snapshots { used, limit })
    }

    /// Notes a snapshot whose data are there, in the place of the one that it replaces.
    pub(crate) async fn keep_snapshot(&self, snapshot: SnapshotRecord) -> Result<(), StoreError> {
        let before = self.store.put_snapshot(snapshot.clone()).await?;
        self.snapshots.put(snapshot);
        if let Some(before) = before {
            let driver = self.driver.clone();
            // Whoever starts from it is waited for, which is not to hold up the sandbox that was saved.
            tokio::spawn(async move {
                if let Err(error) = driver.remove_snapshot(before).await {
                    tracing::warn!(snapshot.id = %before, error = %Chain(&error), "a replaced snapshot stays until the next start");
                }
            });
        }
        Ok(())
    }

    /// Removes a snapshot: first from what users see, so that half of one is never met.
    pub(crate) async fn forget_snapshot(&self, id: SnapshotId) -> Result<(), SnapshotError> {
        self.store.delete_snapshot(id).await?;
        self.snapshots.remove(id);
        // What stays on the disk is cleared by the next start.
        self.driver.remove_snapshot(id).await?;
        Ok(())
    }

    /// Removes each snapshot when its time has come, for ever.
    pub(crate) async fn expire_snapshots(&self) {
        loop {
            let changed = self.snapshots.changed.notified();
            let next = self
                .snapshots
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
                    if let Err(error) = self.forget_snapshot(id).await {
                        tracing::error!(snapshot.id = %id, error = %Chain(&error), "an expired snapshot stays on the disk");
                        // Nobody sees it any more.
                        self.snapshots.remove(id);
                    }
                }
            }
        }
    }
}
