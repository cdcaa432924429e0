//! The names of sandboxes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shoal_core::id::{SandboxId, TeamId};
pub use shoal_core::ports::sandboxes::NameError;
use shoal_core::sandbox::{NAME_KEY, SandboxName, SandboxRecord};

/// The team and the name.
type Key = (TeamId, String);

type ReservedNames = Arc<Mutex<HashSet<Key>>>;

/// The names of sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The names of sandboxes that are about to exist.
    reserved: ReservedNames,
    /// The names that requests gave. An entry may be out of date: readers compare it with the record.
    given: RwLock<HashMap<Key, SandboxId>>,
}

impl Names {
    /// Keeps the name that a request gave a sandbox, for as long as its team can see the sandbox.
    pub(crate) fn note(&self, record: &SandboxRecord) {
        let Some(name) = record.spec.metadata.get(NAME_KEY) else {
            return;
        };
        let key = (record.team, name.clone());
        let mut given = self.given.write();
        if record.is_user_visible() {
            given.insert(key, record.id.clone());
        } else if given.get(&key) == Some(&record.id) {
            given.remove(&key);
        }
    }

    /// The sandbox that last got this name.
    pub(super) fn given(&self, team: TeamId, name: &str) -> Option<SandboxId> {
        self.given.read().get(&(team, name.to_owned())).cloned()
    }

    /// Reserves a name until the guard is dropped, unless it is reserved or `taken`.
    pub(super) fn reserve(
        &self,
        team: TeamId,
        name: &SandboxName,
        taken: impl FnOnce() -> bool,
    ) -> Result<NameReservation, NameError> {
        let mut reserved = self.reserved.lock();
        let key = (team, name.as_str().to_owned());
        if reserved.contains(&key) || taken() {
            return Err(NameError::Taken(name.to_string()));
        }
        reserved.insert(key.clone());
        Ok(NameReservation {
            reserved: self.reserved.clone(),
            name: key,
        })
    }
}

/// A reserved name.
#[derive(Debug)]
pub(crate) struct NameReservation {
    reserved: ReservedNames,
    name: Key,
}

impl Drop for NameReservation {
    fn drop(&mut self) {
        self.reserved.lock().remove(&self.name);
    }
}
