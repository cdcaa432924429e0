//! Sandboxes by what they are called.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::{SandboxId, TeamId};
pub use shoal_core::ports::sandboxes::NameError;
use shoal_core::sandbox::{NAME_KEY, SandboxName, SandboxRecord, SandboxSpec};

use crate::engine::{Engine, SandboxError, Shared};

/// How much of what was asked for is said again.
const TOLD: usize = 64;

/// Whose name it is, and the name.
type Key = (TeamId, String);

type Kept = Arc<Mutex<HashSet<Key>>>;

/// What sandboxes are called.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The names of those that are about to be.
    kept: Kept,
    /// Those that were given a name. One may be in here that is gone, or not there for its team
    /// yet: whoever looks asks its record.
    given: RwLock<HashMap<Key, SandboxId>>,
}

impl Names {
    /// Notes what a sandbox is called, if it was given a name, for as long as somebody may use it.
    pub(crate) fn note(&self, record: &SandboxRecord) {
        let Some(name) = record.spec.metadata.get(NAME_KEY) else {
            return;
        };
        let key = (record.team, name.clone());
        let mut given = self.given.write();
        if record.is_anybodys() {
            given.insert(key, record.id.clone());
        } else if given.get(&key) == Some(&record.id) {
            given.remove(&key);
        }
    }
}

/// A name that is kept for a sandbox.
#[derive(Debug)]
pub(crate) struct KeptName {
    kept: Kept,
    name: Key,
}

impl Drop for KeptName {
    fn drop(&mut self) {
        self.kept.lock().remove(&self.name);
    }
}

impl Shared {
    /// Keeps the name that a sandbox is to have, if it was given one, until it is known itself.
    pub(crate) fn keep_name(
        &self,
        team: TeamId,
        spec: &SandboxSpec,
    ) -> Result<Option<KeptName>, NameError> {
        let Some(name) = spec.metadata.get(NAME_KEY) else {
            return Ok(None);
        };
        let name: SandboxName = name.parse()?;
        let mut kept = self.names.kept.lock();
        let key = (team, name.as_str().to_owned());
        if kept.contains(&key) || self.called(team, name.as_str()).is_some() {
            return Err(NameError::Taken(name.to_string()));
        }
        kept.insert(key.clone());
        Ok(Some(KeptName {
            kept: self.names.kept.clone(),
            name: key,
        }))
    }

    /// The sandbox of a team that is called so.
    fn called(&self, team: TeamId, name: &str) -> Option<Arc<SandboxRecord>> {
        let is_it = |record: &Arc<SandboxRecord>| {
            record.team == team && record.is_anybodys() && record.name() == name
        };
        let key = (team, name.to_owned());
        let given = self.names.given.read().get(&key).cloned();
        let given = given.and_then(|id| self.entries.record(&id)).filter(is_it);
        // The name of one that was given none ends with its id.
        given.or_else(|| {
            let (_, id) = name.rsplit_once('-')?;
            self.entries.record(&id.parse().ok()?).filter(is_it)
        })
    }
}

impl Engine {
    /// The right of `principal` to the sandbox that has this id or is called so; the id comes
    /// first.
    ///
    /// # Errors
    /// [`SandboxError::NoSuchName`] when there is none, or it is another tenant's.
    pub fn find(
        &self,
        principal: &Principal,
        text: &str,
    ) -> Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError> {
        if let Ok(id) = text.parse::<SandboxId>()
            && let Ok(found) = self.authorize(principal, &id)
        {
            return Ok(found);
        }
        let called = self.shared.called(principal.team, text);
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
