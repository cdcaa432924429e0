//! Snapshots: what there is, and which one a reference means.

use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::driver::DriverError;
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::store::StoreError;
use shoal_core::template::TemplateRef;
use tokio::sync::Notify;

use crate::engine::{Engine, Shared};

/// Why nothing was done with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// There is none, or it is another tenant's.
    #[error("snapshot '{0}' not found")]
    NotFound(TemplateRef),
    /// The driver did not do it.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which snapshots are listed.
#[derive(Debug, Clone, Default)]
pub struct SnapshotFilter {
    /// Those that were taken of this sandbox.
    pub source: Option<SandboxId>,
    /// Those that this means; all tags of it when it has none.
    pub named: Option<TemplateRef>,
}

/// All snapshots; few, and read at each create.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    all: RwLock<Vec<Arc<SnapshotRecord>>>,
    changed: Notify,
}

impl Snapshots {
    pub(crate) fn load(snapshots: Vec<SnapshotRecord>) -> Self {
        Self {
            all: RwLock::new(snapshots.into_iter().map(Arc::new).collect()),
            changed: Notify::new(),
        }
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

impl Shared {
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
                        tracing::error!(snapshot.id = %id, %error, "an expired snapshot stays on the disk");
                        // Nobody sees it any more.
                        self.snapshots.remove(id);
                    }
                }
            }
        }
    }
}
