//! The specification of a pod, shared by its copies.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// The specification of a pod, as in core/v1. Copies share it until one of them is changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSpec(Arc<Map<String, Value>>);

/// The specifications of this process that equal ones share, by hash.
static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);

/// So many are remembered without a look at who still uses them.
const FEW: usize = 64;

#[derive(Default)]
struct Shared {
    by_hash: HashMap<u64, Weak<Map<String, Value>>>,
    /// How many were in use at the last look.
    used: usize,
}

impl PodSpec {
    /// Takes the memory of an equal specification that was shared before. Thousands of pods of one template then
    /// need one specification.
    pub fn share(&mut self) {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        let hash = hasher.finish();
        let mut shared = SHARED.lock();
        let known = shared.by_hash.get(&hash).and_then(Weak::upgrade);
        match known {
            Some(known) if known == self.0 => self.0 = known,
            // Of two with one hash, the latest is shared.
            _ => shared.add(hash, &self.0),
        }
    }
}

impl Shared {
    fn add(&mut self, hash: u64, spec: &Arc<Map<String, Value>>) {
        if self.by_hash.len() >= FEW + 2 * self.used {
            self.by_hash.retain(|_, spec| spec.strong_count() > 0);
            self.used = self.by_hash.len();
        }
        self.by_hash.insert(hash, Arc::downgrade(spec));
    }
}

impl Deref for PodSpec {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for PodSpec {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Map<String, Value>> for PodSpec {
    fn from(spec: Map<String, Value>) -> Self {
        Self(Arc::new(spec))
    }
}

impl From<PodSpec> for Value {
    fn from(spec: PodSpec) -> Self {
        Self::Object(Arc::unwrap_or_clone(spec.0))
    }
}

impl Serialize for PodSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PodSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(image: &str) -> PodSpec {
        serde_json::from_value(json!({"containers": [{"name": "main", "image": image}]})).unwrap()
    }

    #[test]
    fn equal_specifications_share_memory_until_one_changes() {
        let (mut first, mut second, mut other) = (spec("shared"), spec("shared"), spec("other"));
        for one in [&mut first, &mut second, &mut other] {
            one.share();
        }
        assert!(Arc::ptr_eq(&first.0, &second.0) && !Arc::ptr_eq(&first.0, &other.0));
        second.insert("nodeName".to_owned(), json!("n"));
        assert!(!first.contains_key("nodeName") && second.contains_key("nodeName"));
        second.share();
        assert_eq!(second["nodeName"], "n");
    }

    #[test]
    fn what_nobody_uses_any_more_is_forgotten() {
        let mut shared = Shared::default();
        for number in 0..10_000 {
            shared.add(number, &spec("gone").0);
        }
        assert!(shared.by_hash.len() <= FEW);
        let used: Vec<_> = (0..1000).map(|_| spec("used").0).collect();
        for (number, spec) in (20_000..).zip(&used) {
            shared.add(number, spec);
        }
        for number in 30_000..40_000 {
            shared.add(number, &spec("gone").0);
        }
        let live = shared.by_hash.values();
        assert_eq!(live.filter(|spec| spec.strong_count() > 0).count(), 1000);
        assert!(shared.by_hash.len() <= FEW + 2 * 1000);
    }
}
