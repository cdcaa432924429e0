//! Keys of objects by group.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Key;

/// Which objects are in which groups. Each key and each name of a group is in memory once.
#[derive(Default)]
pub(super) struct Groups {
    members: HashMap<Arc<str>, Members>,
    of: HashMap<Arc<Key>, Box<[Arc<str>]>>,
}

/// The members of a group. Nearly all groups have one: a sandbox has one pod.
enum Members {
    One(Arc<Key>),
    Many(BTreeSet<Arc<Key>>),
}

impl Groups {
    /// Puts an object into these groups, and takes it out of all others.
    pub(super) fn set(&mut self, key: &Key, groups: &[String]) {
        let before = self.of.get(key).map_or(&[][..], |groups| &**groups);
        if before.iter().map(|group| &**group).eq(groups) {
            return;
        }
        let known = self.of.remove_entry(key);
        let (key, before) = known.unwrap_or_else(|| (Arc::new(key.clone()), Box::default()));
        for group in before {
            let of_group = self.members.get_mut(&group);
            if of_group.is_some_and(|members| members.remove(&key)) {
                self.members.remove(&group);
            }
        }
        if groups.is_empty() {
            return;
        }
        let named = groups
            .iter()
            .map(|group| self.insert(group, &key))
            .collect();
        self.of.insert(key, named);
    }

    fn insert(&mut self, group: &str, key: &Arc<Key>) -> Arc<str> {
        if let Some((name, _)) = self.members.get_key_value(group) {
            let name = name.clone();
            if let Some(members) = self.members.get_mut(group) {
                members.insert(key.clone());
            }
            return name;
        }
        let name: Arc<str> = group.into();
        self.members.insert(name.clone(), Members::One(key.clone()));
        name
    }

    /// The keys of a group's members.
    pub(super) fn members(&self, group: &str) -> Vec<Key> {
        match self.members.get(group) {
            None => Vec::new(),
            Some(Members::One(key)) => vec![Key::clone(key)],
            Some(Members::Many(keys)) => keys.iter().map(|key| Key::clone(key)).collect(),
        }
    }

    /// All objects that are in a group.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.of.keys().map(|key| &**key)
    }
}

impl Members {
    fn insert(&mut self, key: Arc<Key>) {
        match self {
            Self::One(known) if *known == key => {}
            Self::One(known) => *self = Self::Many([known.clone(), key].into()),
            Self::Many(keys) => {
                keys.insert(key);
            }
        }
    }

    /// Whether none are left.
    fn remove(&mut self, key: &Key) -> bool {
        match self {
            Self::One(known) => **known == *key,
            Self::Many(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("ns".to_owned(), name.to_owned())
    }

    fn set(groups: &mut Groups, name: &str, named: &[&str]) {
        let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
        groups.set(&key(name), &named);
    }

    #[test]
    fn members_come_and_go() {
        let mut groups = Groups::default();
        set(&mut groups, "a", &["one", "all"]);
        set(&mut groups, "b", &["all"]);
        assert_eq!(groups.members("all"), [key("a"), key("b")]);
        assert_eq!(groups.members("one"), [key("a")]);
        set(&mut groups, "a", &["other"]);
        assert_eq!(groups.members("all"), [key("b")]);
        assert_eq!(groups.members("one"), []);
        assert_eq!(groups.members("other"), [key("a")]);
        assert_eq!(groups.keys().count(), 2);
        set(&mut groups, "b", &["all"]);
        set(&mut groups, "a", &[]);
        set(&mut groups, "b", &[]);
        assert_eq!(groups.keys().count(), 0);
        assert!(groups.members.is_empty());
    }
}
