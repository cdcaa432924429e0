//! What of a snapshot leaves this installation, and what does not.

use shoal_core::driver::ExportKey;
use shoal_core::sandbox::Purpose;
use shoal_core::snapshot::SnapshotRecord;

use crate::engine::Shared;
use crate::snapshots::SnapshotError;

/// A snapshot without what means something to one installation alone: what its sandbox was started
/// from, which request made it, and what it was for. It has a token only if it has the memory in
/// which a daemon asks for it.
pub(crate) fn for_others(mut noted: SnapshotRecord) -> SnapshotRecord {
    if !noted.saved.contents.has_memory() {
        noted.guest_token = None;
    }
    let spec = &mut noted.spec;
    spec.snapshot = None;
    spec.claim = None;
    spec.purpose = Purpose::Use;
    noted
}

impl Shared {
    /// What exports are sealed with.
    pub(crate) fn export_key(&self) -> ExportKey {
        let given = self.config.export_key.clone();
        given.unwrap_or_else(|| self.seed.export_key())
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
        let mut live = self.entries.records().into_iter();
        let opened = live.find(|record| {
            if !record.state.is_live() {
                return false;
            }
            // The daemon asks for it even where clients need none.
            let opens = [self.guest_token(record), self.coming_guest_token(record)];
            opens.iter().any(|token| held.contains(&token))
        });
        match opened {
            Some(record) => Err(SnapshotError::LiveToken(record.id.clone())),
            None => Ok(()),
        }
    }
}
