//! The secrets of a session in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::session::secret::{SecretName, SecretValue};
use tokio::sync::watch;

/// The variables of a machine's windows, and the values that they mask.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// The variables.
    pub set: BTreeMap<SecretName, Arc<SecretValue>>,
    /// All values that were set in this machine. Programs may still have them.
    pub hidden: Vec<Arc<SecretValue>>,
}

/// The secrets as a window follows them.
pub type FollowSecrets = watch::Receiver<Secrets>;

impl Secrets {
    /// Sets these variables instead; whether anything has changed.
    pub(crate) fn replace(&mut self, set: BTreeMap<SecretName, Arc<SecretValue>>) -> bool {
        if self.set == set {
            return false;
        }
        for value in set.values() {
            if !self.hidden.contains(value) {
                self.hidden.push(value.clone());
            }
        }
        self.set = set;
        true
    }
}
