//! Names and tags of snapshots: annotations of their Checkpoints.
//!
//! The Checkpoints of one name in a namespace are versions. Replicas of the API write independently of each other, so a tag
//! belongs to the version that was given it last: one write moves it, and none is half done.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp as Time;
use serde_json::{Value, json};
use shoal_core::template::TemplateName;
use shoal_crds::kruise::Checkpoint;
use shoal_crds::kruise::names::{annotation, label, label_value};

/// Tags, each with the time at which it was given.
pub(crate) type Tags = BTreeMap<String, Time>;

/// The name of a snapshot, if it has one.
pub(crate) fn name_of(checkpoint: &Checkpoint) -> Option<TemplateName> {
    let name = checkpoint.annotation(annotation::SNAPSHOT_NAME)?;
    name.parse().ok()
}

/// The tags that a version was given, including those that have moved to another version. Empty if unreadable.
pub(crate) fn given(checkpoint: &Checkpoint) -> Tags {
    let tags = checkpoint.annotation(annotation::SNAPSHOT_TAGS);
    let tags = tags.and_then(|tags| serde_json::from_str(tags).ok());
    tags.unwrap_or_default()
}

/// The tags that a version has: those that no other version was given later.
pub(crate) fn current(version: &Checkpoint, versions: &[Arc<Checkpoint>]) -> Tags {
    let others: Vec<(&Checkpoint, Tags)> = versions
        .iter()
        .filter(|other| other.metadata.uid != version.metadata.uid)
        .map(|other| (&**other, given(other)))
        .collect();
    let mut tags = given(version);
    tags.retain(|tag, at| {
        let own = (*at, age(version));
        others
            .iter()
            .all(|(other, tags)| tags.get(tag).is_none_or(|at| (*at, age(other)) < own))
    });
    tags
}

/// Decides between versions that were given a tag at the same time.
fn age(version: &Checkpoint) -> (Option<Time>, &str) {
    let created = version.metadata.creation_timestamp.as_ref();
    let uid = version.metadata.uid.as_deref().unwrap_or_default();
    (created.map(|at| at.0), uid)
}

/// The time for a tag that is given now: later than all before, though clocks differ.
pub(crate) fn next_time(versions: &[Arc<Checkpoint>], now: Time) -> Time {
    let last = versions
        .iter()
        .flat_map(|version| given(version).into_values());
    let after = |at: Time| {
        at.checked_add(std::time::Duration::from_millis(1))
            .unwrap_or(at)
    };
    last.max().map_or(now, |last| now.max(after(last)))
}

/// The metadata of a version.
pub(crate) fn metadata(name: &TemplateName, tags: &Tags) -> Value {
    json!({
        "labels": {label::SNAPSHOT: label_value(name.as_str())},
        "annotations": {
            annotation::SNAPSHOT_NAME: name,
            annotation::SNAPSHOT_TAGS: text(tags),
        },
    })
}

/// The tags as an annotation.
pub(crate) fn text(tags: &Tags) -> String {
    let tags: BTreeMap<_, _> = tags.iter().map(|(tag, at)| (tag, at.to_string())).collect();
    json!(tags).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(uid: &str, tags: &[(&str, &str)]) -> Arc<Checkpoint> {
        let tags: Tags = tags
            .iter()
            .map(|(tag, at)| ((*tag).to_owned(), at.parse().unwrap()))
            .collect();
        let mut made = json!({
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {},
        });
        let metadata = metadata(&"work".parse().unwrap(), &tags);
        for (field, value) in metadata.as_object().unwrap() {
            made["metadata"][field] = value.clone();
        }
        Arc::new(serde_json::from_value(made).unwrap())
    }

    fn tags(version: &Checkpoint, versions: &[Arc<Checkpoint>]) -> Vec<String> {
        current(version, versions).into_keys().collect()
    }

    const FIRST: &str = "2026-01-02T03:04:05Z";
    const LATER: &str = "2026-01-02T03:04:06.5Z";

    #[test]
    fn a_tag_belongs_to_the_version_that_was_given_it_last() {
        let old = version("a", &[("default", FIRST), ("v1", FIRST)]);
        let new = version("b", &[("default", LATER)]);
        let all = [old.clone(), new.clone()];
        assert_eq!(tags(&old, &all), ["v1"]);
        assert_eq!(tags(&new, &all), ["default"]);
        assert_eq!(name_of(&old).unwrap().as_str(), "work");
    }

    #[test]
    fn at_the_same_time_exactly_one_has_it() {
        let all = [version("a", &[("v", FIRST)]), version("b", &[("v", FIRST)])];
        assert_eq!(tags(&all[0], &all), [""; 0]);
        assert_eq!(tags(&all[1], &all), ["v"]);
    }

    #[test]
    fn a_tag_that_moves_is_given_after_all_others() {
        let fast = [version("a", &[("v", LATER)])];
        let given = next_time(&fast, FIRST.parse().unwrap());
        assert_eq!(given, "2026-01-02T03:04:06.501Z".parse().unwrap());
        assert_eq!(
            next_time(&[], FIRST.parse().unwrap()),
            FIRST.parse().unwrap()
        );
    }

    #[test]
    fn unreadable_tags_are_none() {
        let mut odd = Checkpoint::clone(&version("a", &[]));
        let annotations = odd.metadata.annotations.as_mut().unwrap();
        annotations.insert(annotation::SNAPSHOT_TAGS.to_owned(), "{".to_owned());
        assert!(given(&odd).is_empty());
    }
}
