//! How much the checkpoints of a node may take. What one will take is estimated before it begins: a disk that is full
//! half-way would disturb the pod.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_checkpoint::Key;

/// The reserve on the disk.
const SPARE: u64 = 64 << 20;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most bytes of all checkpoints.
    pub(crate) all: u64,
    /// The most bytes of one namespace's checkpoints.
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

/// The room for a checkpoint, in bytes, or in multiples of the size of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    /// The part that counts against the bounds and the disk.
    pub(crate) kept: u64,
    /// The part that only the disk needs, for a while.
    pub(crate) scratch: u64,
}

impl Needed {
    /// The bytes, of multiples of this size.
    pub(crate) fn of(self, size: u64) -> Self {
        Self {
            kept: self.kept.saturating_mul(size),
            scratch: self.scratch.saturating_mul(size),
        }
    }

    fn on_disk(self) -> u64 {
        self.kept.saturating_add(self.scratch)
    }
}

/// Room that is kept for checkpoints that are being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms(Arc<Mutex<HashMap<Key, (String, Needed)>>>);

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
        wanted: Needed,
        complete: &[(String, Key, u64)],
        free: u64,
    ) -> Result<Room, NoRoom> {
        let mut kept = self.0.lock();
        let complete = complete.iter().map(|(of, _, bytes)| (of, *bytes));
        let known: Vec<(&String, u64)> = complete
            .chain(kept.values().map(|(of, needed)| (of, needed.kept)))
            .collect();
        let promised: u64 = kept.values().map(|(_, needed)| needed.on_disk()).sum();
        let all: u64 = known.iter().map(|(_, bytes)| bytes).sum();
        let own = known.iter().filter(|(of, _)| *of == namespace);
        let own: u64 = own.map(|(_, bytes)| bytes).sum();
        let needed = wanted.kept;
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
        let needed = wanted.on_disk();
        if promised.saturating_add(SPARE).saturating_add(needed) > free {
            return Err(NoRoom::Disk { free, needed });
        }
        kept.insert(key.clone(), (namespace.to_owned(), wanted));
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

    fn kept(bytes: u64) -> Needed {
        Needed {
            kept: bytes,
            scratch: 0,
        }
    }

    fn key(digit: &str) -> Key {
        digit.repeat(32).parse().unwrap()
    }

    #[test]
    fn a_namespace_has_its_share_and_the_store_its_bound() {
        let rooms = Rooms::default();
        let complete = [("a".to_owned(), key("1"), 40)];
        let take = |namespace: &str, digit: &str, needed: u64| {
            rooms.take(
                BOUNDS,
                namespace,
                &key(digit),
                kept(needed),
                &complete,
                FREE,
            )
        };
        assert!(matches!(
            take("a", "2", 21),
            Err(NoRoom::Namespace { taken: 40, .. })
        ));
        let held = take("a", "2", 20).unwrap();
        // Unfinished checkpoints count, too.
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
        let take = |digit: &str, needed: Needed, free: u64| {
            rooms.take(BOUNDS, "a", &key(digit), needed, &[], free)
        };
        let none = |taken| matches!(taken, Err(NoRoom::Disk { .. }));
        assert!(none(take("1", kept(10), SPARE + 9)));
        let _held = take("1", kept(10), SPARE + 10).unwrap();
        assert!(none(take("2", kept(10), SPARE + 10)));
        // Deleted checkpoints still use the disk, but count against no bound.
        let (once, ends) = (
            BOUNDS.namespace - 10,
            Needed {
                kept: 1,
                scratch: 1,
            },
        );
        assert!(none(take("2", ends.of(once), SPARE + 10 + 2 * once - 1)));
        let held = take("2", ends.of(once), SPARE + 10 + 2 * once).unwrap();
        assert!(none(take("3", kept(0), SPARE + 10 + 2 * once - 1)));
        drop(held);
    }
}
