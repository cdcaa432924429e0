//! Sandboxes by what they are called.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shoal_core::id::{SandboxId, TeamId};
pub use shoal_core::ports::sandboxes::NameError;
use shoal_core::sandbox::{NAME_KEY, SandboxName, SandboxRecord};

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

    /// The sandbox that was last given a name.
    pub(super) fn given(&self, team: TeamId, name: &str) -> Option<SandboxId> {
        self.given.read().get(&(team, name.to_owned())).cloned()
    }

    /// Reserves a name until the answer is dropped, unless it is reserved or `taken`.
    pub(super) fn reserve(
        &self,
        team: TeamId,
        name: &SandboxName,
        taken: impl FnOnce() -> bool,
    ) -> Result<KeptName, NameError> {
        let mut kept = self.kept.lock();
        let key = (team, name.as_str().to_owned());
        if kept.contains(&key) || taken() {
            return Err(NameError::Taken(name.to_string()));
        }
        kept.insert(key.clone());
        Ok(KeptName {
            kept: self.kept.clone(),
            name: key,
        })
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
