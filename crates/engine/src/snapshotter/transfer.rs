//! Exports snapshots to files, and imports them.

use std::path::PathBuf;

use shoal_core::auth::Principal;
use shoal_core::driver::{DriverError, ExportRequest, ImportRequest, Imported};
use shoal_core::id::{SnapshotId, TemplateId};
use shoal_core::sandbox::Purpose;
use shoal_core::snapshot::{Saved, SnapshotRecord};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, TemplateRef};

use super::Snapshotter;
use crate::random::{self, NoEntropy};
use crate::snapshots::{ClaimedName, SnapshotError};

/// The record without the fields that only one installation understands: the origin and the purpose of
/// its sandbox. It keeps its token only together with the memory of the daemon that asks for it.
fn portable(mut noted: SnapshotRecord) -> SnapshotRecord {
    if !noted.saved.contents.has_memory() {
        noted.guest_token = None;
    }
    noted.more_tags.clear();
    let spec = &mut noted.spec;
    spec.snapshot = None;
    spec.purpose = Purpose::Use;
    noted
}

impl Snapshotter {
    /// Refuses to export memory that holds the token of a live sandbox: a reader of the export could
    /// use it. A daemon cannot forget its token before it is saved, because its memory also holds the
    /// requests that carried the token.
    fn refuse_live_tokens(&self, snapshot: &SnapshotRecord) -> Result<(), SnapshotError> {
        if !snapshot.saved.contents.has_memory() {
            return Ok(());
        }
        let origin = snapshot.spec.snapshot.as_ref();
        let origin = origin.and_then(|origin| origin.guest_token.clone());
        let held: Vec<_> = snapshot.guest_token.iter().chain(&origin).collect();
        let mut live = self.parts.sandboxes.records().into_iter();
        let opened = live.find(|record| {
            if !record.state.is_live() {
                return false;
            }
            // The daemon asks for its token even where clients need none.
            let opens = [
                self.parts.access.guest_token(record),
                self.parts.access.coming_guest_token(record),
            ];
            opens.iter().any(|token| held.contains(&token))
        });
        match opened {
            Some(record) => Err(SnapshotError::LiveToken(record.id.clone())),
            None => Ok(()),
        }
    }

    /// Exports a snapshot to a new file on the server's machine. Returns the size of the file.
    ///
    /// # Errors
    /// See [`SnapshotError`]; no file is left then.
    pub(crate) async fn export(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
        target: PathBuf,
    ) -> Result<u64, SnapshotError> {
        let snapshot = self.parts.snapshots.find(principal, reference)?;
        self.refuse_live_tokens(&snapshot)?;
        let noted = portable(snapshot.as_ref().clone());
        let note = serde_json::to_string(&noted).map_err(StoreError::failed)?;
        let request = ExportRequest {
            snapshot: snapshot.id,
            target,
            note,
            key: self.export_key.clone(),
        };
        Ok(self.parts.drivers.export_snapshot(request).await?)
    }

    /// Imports an exported snapshot for the caller's team, under `name` or its original name. With
    /// `trust` it may come from another installation: the runtime loads its memory, and its programs
    /// run, exactly as the author of the file wrote them.
    ///
    /// # Errors
    /// See [`SnapshotError`]; nothing is left of the snapshot then.
    pub(crate) async fn import(
        &self,
        principal: &Principal,
        source: PathBuf,
        name: Option<TemplateRef>,
        trust: bool,
    ) -> Result<SnapshotRecord, SnapshotError> {
        let _place = self
            .parts
            .snapshots
            .reserve(principal.team)
            .map_err(SnapshotError::Full)?;
        let id = SnapshotId::from_entropy(random::bytes()?);
        // The name is checked before the copy, which takes long.
        let claimed = match &name {
            Some(name) => Some(self.reserve(principal, name).await?),
            None => None,
        };
        let request = ImportRequest {
            source,
            snapshot: id,
            key: self.export_key.clone(),
            trust,
            max_bytes: self.import_max,
        };
        let Imported { saved, note } = self.parts.drivers.import_snapshot(request).await?;
        let noted: Result<SnapshotRecord, _> = serde_json::from_str(&note);
        let adopted = match noted {
            Ok(noted) => {
                self.adopt(principal, id, saved, portable(noted), name.zip(claimed))
                    .await
            }
            Err(error) => Err(DriverError::Unusable(error.to_string()).into()),
        };
        if adopted.is_err() {
            // No record refers to it: the next start would clear it too.
            let _ = self.parts.drivers.remove_snapshot(id).await;
        }
        adopted
    }

    async fn reserve(
        &self,
        principal: &Principal,
        name: &TemplateRef,
    ) -> Result<ClaimedName, SnapshotError> {
        let templates = &self.parts.templates;
        let reserved = templates.reserve_snapshot_name(principal, name, fresh_template()?);
        Ok(reserved.await?)
    }

    /// Stores the record of a snapshot that the driver has imported.
    async fn adopt(
        &self,
        principal: &Principal,
        id: SnapshotId,
        saved: Saved,
        noted: SnapshotRecord,
        called: Option<(TemplateRef, ClaimedName)>,
    ) -> Result<SnapshotRecord, SnapshotError> {
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
                let claimed = self.reserve(principal, &own).await?;
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
            created_at: self.parts.clock.now(),
            expires_at: None,
            ..noted
        };
        self.parts.snapshots.keep(snapshot.clone()).await?;
        Ok(snapshot)
    }
}

/// A new template id, in case the name has none yet.
fn fresh_template() -> Result<TemplateId, NoEntropy> {
    Ok(TemplateId::from_entropy(random::bytes()?))
}
