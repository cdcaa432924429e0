//! How much the checkpoints of a node may take. The size of each is estimated before it begins: a disk that is full
//! half-way would disturb the pod.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_checkpoint::{Key, Store, StoreError};

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

impl NoRoom {
    /// Whether room can be made by deleting copies: only those of the namespace, or those of all.
    fn is_mended_by(&self) -> Option<Copies> {
        match self {
            Self::Namespace { bound, needed, .. } => (needed <= bound).then_some(Copies::Own),
            Self::Store { bound, needed, .. } => (needed <= bound).then_some(Copies::All),
            Self::Disk { .. } => Some(Copies::All),
        }
    }
}

/// Copies of other nodes' checkpoints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// Those of the namespace.
    Own,
    /// Those of all namespaces.
    All,
}

impl Rooms {
    /// Keeps room in a store, of which some bytes are written already. Deletes copies of other nodes' checkpoints while there
    /// is too little and that helps: a namespace that exceeds its share loses its own.
    pub(crate) fn take_in(
        &self,
        store: &Store,
        bounds: Bounds,
        namespace: &str,
        key: &Key,
        (wanted, written): (Needed, u64),
    ) -> Result<Result<Room, NoRoom>, StoreError> {
        loop {
            let complete = store.list()?;
            let free = store.free()?.saturating_add(written);
            let why = match self.take(bounds, namespace, key, wanted, &complete, free) {
                Ok(room) => return Ok(Ok(room)),
                Err(why) => why,
            };
            let copy = match why.is_mended_by() {
                Some(Copies::Own) => store.oldest_copy(Some(namespace))?,
                Some(Copies::All) => store.oldest_copy(None)?,
                None => None,
            };
            let Some((of, copy)) = copy else {
                return Ok(Err(why));
            };
            tracing::info!(namespace = %of, key = %copy, "deleted a copy from the object store, to make room");
            store.remove(&of, &copy)?;
        }
    }

    /// Keeps room for a checkpoint. `complete` are the checkpoints of the store, by namespace; `free` is what the disk
    /// has left.
    fn take(
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
    use shoal_checkpoint::{Contents, Manifest, Staged};

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

    /// A checkpoint that is being written, with 20 KiB.
    fn staged<'a>(store: &'a Store, digit: &str) -> Staged<'a> {
        let staged = store.stage(&key(digit)).unwrap();
        std::fs::write(staged.path().join("pages.img"), vec![1; 20 << 10]).unwrap();
        staged
    }

    /// A checkpoint in a store; of another node, if it is a copy.
    fn add(store: &Store, namespace: &str, digit: &str, is_copy: bool) {
        let manifest = Manifest::new(
            namespace.to_owned(),
            String::new(),
            String::new(),
            Contents::Memory,
        );
        if !is_copy {
            staged(store, digit).publish(manifest).unwrap();
            return;
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let other = Store::at(elsewhere.path());
        other.prepare().unwrap();
        let id = staged(&other, digit).publish(manifest).unwrap();
        let bytes = other.read_manifest(namespace, id.key()).unwrap();
        staged(store, digit)
            .publish_copy(namespace, &id, &bytes)
            .unwrap();
    }

    #[test]
    fn copies_make_room_where_that_helps() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path());
        store.prepare().unwrap();
        add(&store, "a", "1", false);
        for (namespace, digit) in [("a", "2"), ("b", "3"), ("b", "4")] {
            add(&store, namespace, digit, true);
        }
        let rooms = Rooms::default();
        let bounds = Bounds {
            all: 120 << 10,
            namespace: 70 << 10,
        };
        let take = |namespace: &str, digit: &str, kibibytes: u64| {
            let needed = kept(kibibytes << 10);
            let taken = rooms.take_in(&store, bounds, namespace, &key(digit), (needed, 0));
            taken.unwrap().map(drop)
        };
        let left = || {
            let listed = store.list().unwrap();
            let mut left: Vec<String> = listed.iter().map(|(_, key, _)| key.to_string()).collect();
            left.iter_mut().for_each(|key| key.truncate(1));
            left.sort();
            left.concat()
        };
        // A reservation that cannot fit deletes nothing.
        assert!(take("a", "5", 71).is_err());
        assert_eq!(left(), "1234");
        // A share is made room in by copies of its own namespace.
        assert!(take("a", "5", 40).is_ok());
        assert_eq!(left(), "134");
        assert!(take("a", "5", 60).is_err(), "the other one was saved here");
        assert_eq!(left(), "134");
        // The bound of all is met by any copies, the oldest first.
        assert!(take("c", "5", 65).is_ok());
        assert_eq!(left(), "14");
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
