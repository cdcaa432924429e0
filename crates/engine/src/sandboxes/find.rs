//! Sandboxes by their ids and names.

use std::sync::Arc;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::{SandboxId, TeamId};
use shoal_core::sandbox::{NAME_KEY, SandboxName, SandboxRecord, SandboxSpec};

use super::Sandboxes;
use super::names::{NameError, NameReservation};
use shoal_core::ports::sandboxes::SandboxError;

/// How many characters of an unknown name an error repeats.
const TOLD: usize = 64;

impl Sandboxes {
    /// Reserves the name that the request gives the sandbox, if it gives one.
    pub(crate) fn reserve_name(
        &self,
        team: TeamId,
        spec: &SandboxSpec,
    ) -> Result<Option<NameReservation>, NameError> {
        let Some(name) = spec.metadata.get(NAME_KEY) else {
            return Ok(None);
        };
        let name: SandboxName = name.parse()?;
        let taken = || self.called(team, name.as_str()).is_some();
        self.names.reserve(team, &name, taken).map(Some)
    }

    /// The sandbox of a team with this name.
    fn called(&self, team: TeamId, name: &str) -> Option<Arc<SandboxRecord>> {
        let is_it = |record: &Arc<SandboxRecord>| {
            record.team == team && record.is_user_visible() && record.name() == name
        };
        let given = self.names.given(team, name);
        let given = given.and_then(|id| self.registry.record(&id)).filter(is_it);
        // A generated name ends with the id.
        given.or_else(|| {
            let (_, id) = name.rsplit_once('-')?;
            self.registry.record(&id.parse().ok()?).filter(is_it)
        })
    }
}

impl Sandboxes {
    /// The right of `principal` to the sandbox that has this id or is called so; the id comes
    /// first.
    ///
    /// # Errors
    /// [`SandboxError::NoSuchName`] when there is none, or it is another tenant's.
    pub(crate) fn find(
        &self,
        principal: &Principal,
        text: &str,
    ) -> Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError> {
        if let Ok(id) = text.parse::<SandboxId>()
            && let Ok(found) = self.authorize(principal, &id)
        {
            return Ok(found);
        }
        let called = self.called(principal.team, text);
        // Some clients append their own id to that of a sandbox.
        let called = called.or_else(|| {
            let id = SandboxId::from_wire(text).ok()?;
            Some(self.authorize(principal, &id).ok()?.1)
        });
        called
            .and_then(|record| Some((SandboxPermit::grant(principal, &record)?, record)))
            .ok_or_else(|| SandboxError::NoSuchName(text.chars().take(TOLD).collect()))
    }
}
