//! Exports and imports of snapshots.

use std::path::PathBuf;

use shoal_core::auth::Principal;
use shoal_core::driver::{DriverError, ExportKey, ExportOrder, ImportOrder, Imported};
use shoal_core::id::{SnapshotId, TemplateId};
use shoal_core::sandbox::Purpose;
use shoal_core::snapshot::{Saved, SnapshotRecord};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, TemplateRef};

use crate::engine::{Engine, Shared};
use crate::entropy::{self, NoEntropy};
use crate::snapshots::{ClaimedName, SnapshotError};

/// A snapshot without the parts that only one installation understands: the origin and the purpose of
/// its sandbox. It keeps its token only together with memory, where a daemon requires it.
pub(crate) fn for_others(mut noted: SnapshotRecord) -> SnapshotRecord {
    if !noted.saved.contents.has_memory() {
        noted.guest_token = None;
    }
    let spec = &mut noted.spec;
    spec.snapshot = None;
    spec.purpose = Purpose::Use;
    noted
}

impl Shared {
    /// What exports are sealed with.
    pub(crate) fn export_key(&self) -> ExportKey {
        let given = self.config.export_key.clone();
        given.unwrap_or_else(|| self.access.export_key())
    }

    /// Refuses a snapshot whose memory would carry the token of a sandbox that is still there to
    /// whoever reads the export. A daemon cannot forget its token before it is saved: what it was
    /// asked with lies in its memory, too.
    pub(crate) fn refuse_live_tokens(
        &self,
        snapshot: &SnapshotRecord,
    ) -> Result<(), SnapshotError> {
        if !snapshot.saved.contents.has_memory() {
            return Ok(());
        }
        let origin = snapshot.spec.snapshot.as_ref();
        let origin = origin.and_then(|origin| origin.guest_token.clone());
        let held: Vec<_> = snapshot.guest_token.iter().chain(&origin).collect();
        let mut live = self.sandboxes.records().into_iter();
        let opened = live.find(|record| {
            if !record.state.is_live() {
                return false;
            }
            // The daemon asks for it even where clients need none.
            let opens = [
                self.access.guest_token(record),
                self.access.coming_guest_token(record),
            ];
            opens.iter().any(|token| held.contains(&token))
        });
        match opened {
            Some(record) => Err(SnapshotError::LiveToken(record.id.clone())),
            None => Ok(()),
        }
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
        let snapshot = self.shared.snapshots.find(principal, reference)?;
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
            .snapshots
            .reserve(principal.team)
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
        shared.snapshots.keep(snapshot.clone()).await?;
        Ok(snapshot)
    }
}

/// What a name may come to mean.
fn fresh_template() -> Result<TemplateId, NoEntropy> {
    Ok(TemplateId::from_entropy(entropy::bytes()?))
}
