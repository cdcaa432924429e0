//! Claims that are taking a member of a pool at this moment. Their writes come before those that refill it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cache::Key;

/// How many claims are taking a member, by pool.
#[derive(Clone, Default)]
pub(crate) struct Adoptions(Arc<Mutex<HashMap<Key, usize>>>);

/// One of them, until it is dropped.
pub(crate) struct Adoption {
    all: Adoptions,
    pool: Key,
}

impl Adoptions {
    pub(crate) fn begin(&self, pool: &Key) -> Adoption {
        *self.0.lock().entry(pool.clone()).or_default() += 1;
        Adoption {
            all: self.clone(),
            pool: pool.clone(),
        }
    }

    pub(crate) fn are_under_way(&self, namespace: &str, pool: &str) -> bool {
        let pool = (namespace.to_owned(), pool.to_owned());
        self.0.lock().contains_key(&pool)
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(count) = all.get_mut(&self.pool) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.pool);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adoption_counts_for_its_pool_until_it_ends() {
        let adoptions = Adoptions::default();
        let pool = ("ns".to_owned(), "pool".to_owned());
        let (one, other) = (adoptions.begin(&pool), adoptions.begin(&pool));
        drop(one);
        assert!(adoptions.are_under_way("ns", "pool"));
        assert!(!adoptions.are_under_way("ns", "other"));
        drop(other);
        assert!(!adoptions.are_under_way("ns", "pool"));
    }
}
