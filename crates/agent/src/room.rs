//! How much the checkpoints of a node may take. What one will take is estimated before it begins: a disk that is full
//! half-way would disturb the pod.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_checkpoint::Key;

/// What stays free on the disk.
const SPARE: u64 = 64 << 20;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of all checkpoints, in bytes.
    pub(crate) all: u64,
    /// Of those of one namespace.
    pub(crate) namespace: u64,
}

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    #[error(
        "the checkpoints of this namespace may take {bound} bytes on this node; they take {taken}, and this one needs up to \
         {needed}: delete old ones, or give them a ttlAfterFinished"
    )]
    Namespace { bound: u64, taken: u64, needed: u64 },
    #[error(
        "all checkpoints may take {bound} bytes on this node; they take {taken}, and this one needs up to {needed}: delete \
         old ones, or raise node.storeSize"
    )]
    Store { bound: u64, taken: u64, needed: u64 },
    #[error("the disk of the node has {free} bytes left, and this checkpoint needs up to {needed}")]
    Disk { free: u64, needed: u64 },
}

/// Room that is kept for checkpoints that are being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms(Arc<Mutex<HashMap<Key, (String, u64)>>>);

/// Room for one checkpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    rooms: Rooms,
    key: Key,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.rooms.0.lock().remove(&self.key);
    }
}

impl Rooms {
    /// Keeps room for a checkpoint. `complete` are the checkpoints of the store, by namespace; `free` is what the disk
    /// has left.
    pub(crate) fn take(
        &self,
        bounds: Bounds,
        namespace: &str,
        key: &Key,
        needed: u64,
        complete: &[(String, Key, u64)],
        free: u64,
    ) -> Result<Room, NoRoom> {
        let mut kept = self.0.lock();
        let complete = complete.iter().map(|(of, _, bytes)| (of, *bytes));
        let known: Vec<(&String, u64)> = complete
            .chain(kept.values().map(|(of, bytes)| (of, *bytes)))
            .collect();
        let promised: u64 = kept.values().map(|(_, bytes)| bytes).sum();
        let all: u64 = known.iter().map(|(_, bytes)| bytes).sum();
        let own = known.iter().filter(|(of, _)| *of == namespace);
        let own: u64 = own.map(|(_, bytes)| bytes).sum();
        let fits = |taken: u64, bound: u64| taken.saturating_add(needed) <= bound;
        if !fits(own, bounds.namespace) {
            let (bound, taken) = (bounds.namespace, own);
            return Err(NoRoom::Namespace {
                bound,
                taken,
                needed,
            });
        }
        if !fits(all, bounds.all) {
            let (bound, taken) = (bounds.all, all);
            return Err(NoRoom::Store {
                bound,
                taken,
                needed,
            });
        }
        if !fits(promised.saturating_add(SPARE), free) {
            return Err(NoRoom::Disk { free, needed });
        }
        kept.insert(key.clone(), (namespace.to_owned(), needed));
        Ok(Room {
            rooms: self.clone(),
            key: key.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        all: 100,
        namespace: 60,
    };
    const FREE: u64 = SPARE + 1000;

    fn key(digit: &str) -> Key {
        digit.repeat(32).parse().unwrap()
    }

    #[test]
    fn a_namespace_has_its_share_and_the_store_its_bound() {
        let rooms = Rooms::default();
        let complete = [("a".to_owned(), key("1"), 40)];
        let take = |namespace: &str, digit: &str, needed: u64| {
            rooms.take(BOUNDS, namespace, &key(digit), needed, &complete, FREE)
        };
        assert!(matches!(
            take("a", "2", 21),
            Err(NoRoom::Namespace { taken: 40, .. })
        ));
        let held = take("a", "2", 20).unwrap();
        // What is being written counts, too.
        assert!(matches!(
            take("a", "3", 1),
            Err(NoRoom::Namespace { taken: 60, .. })
        ));
        assert!(matches!(
            take("b", "3", 41),
            Err(NoRoom::Store { taken: 60, .. })
        ));
        drop(held);
        assert!(take("b", "3", 60).is_ok());
    }

    #[test]
    fn the_disk_keeps_some_room() {
        let rooms = Rooms::default();
        let take = |digit: &str, needed: u64, free: u64| {
            rooms.take(BOUNDS, "a", &key(digit), needed, &[], free)
        };
        assert!(matches!(take("1", 10, SPARE + 9), Err(NoRoom::Disk { .. })));
        let _held = take("1", 10, SPARE + 10).unwrap();
        assert!(matches!(
            take("2", 10, SPARE + 10),
            Err(NoRoom::Disk { .. })
        ));
    }
}
