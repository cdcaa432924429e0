//! The limit of concurrent requests into a sandbox.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::SandboxId;

/// Counts requests and refuses those above the limit.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    most: usize,
    open: Arc<Mutex<HashMap<SandboxId, usize>>>,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            open: Arc::default(),
        }
    }

    /// The limit.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Takes a slot; none when all are in use.
    pub(crate) fn take(&self, sandbox: &SandboxId) -> Option<Slot> {
        let mut open = self.open.lock();
        let count = open.entry(sandbox.clone()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Slot {
            sandbox: sandbox.clone(),
            open: self.open.clone(),
        })
    }
}

/// A slot, released when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    sandbox: SandboxId,
    open: Arc<Mutex<HashMap<SandboxId, usize>>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        if let Some(count) = open.get_mut(&self.sandbox) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.sandbox);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted_for_each_sandbox_and_released() {
        let connections = Connections::new(2);
        let (a, b): (SandboxId, SandboxId) = ("ia".parse().unwrap(), "ib".parse().unwrap());
        let first = connections.take(&a).unwrap();
        let _second = connections.take(&a).unwrap();
        assert!(connections.take(&a).is_none());
        let _other = connections.take(&b).unwrap();
        drop(first);
        assert!(connections.take(&a).is_some());
    }
}
