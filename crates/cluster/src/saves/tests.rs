use serde_json::{Value, json};

use super::*;

pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdef-0123456789abcdef01234567";

fn saved(change: &Value) -> (Checkpoint, SandboxTemplate) {
    let mut checkpoint = json!({
        "metadata": {
            "name": "s-x", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {"agents.kruise.io/init-runtime-request": r#"{"accessToken": "old"}"#},
        },
        "spec": {"podName": "s"},
        "status": {"phase": "Succeeded", "checkpointId": KEY, "completionTime": "2026-01-02T03:04:06Z"},
    });
    for (pointer, value) in change.as_object().into_iter().flatten() {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        checkpoint.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    let template = json!({
        "metadata": {"name": "s-x", "namespace": "team", "ownerReferences": [
            {"apiVersion": "agents.kruise.io/v1alpha1", "kind": "Checkpoint", "name": "s-x", "uid": "u"},
        ]},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
    });
    let checkpoint = serde_json::from_value(checkpoint).unwrap();
    (checkpoint, serde_json::from_value(template).unwrap())
}

fn with(change: &Value, owner: &str) -> Saves {
    let (checkpoint, mut template) = saved(change);
    template.metadata.owner_references.as_mut().unwrap()[0].uid = owner.to_owned();
    let saves = Saves::new();
    saves.checkpoints.put(checkpoint);
    saves.templates.put(template);
    saves
}

fn found(change: &Value, owner: &str) -> Option<SavedSandbox> {
    with(change, owner).find("team", KEY)
}

/// Those that contain one, with the id [`KEY`].
pub(crate) fn known() -> Saves {
    with(&json!({}), "u")
}

/// A snapshot with memory.
pub(crate) fn any() -> SavedSandbox {
    found(&json!({}), "u").unwrap()
}

/// The same, with this id.
pub(crate) fn with_id(id: &str) -> SavedSandbox {
    let (mut checkpoint, template) = saved(&json!({}));
    checkpoint.status.as_mut().unwrap().checkpoint_id = id.to_owned();
    SavedSandbox::of(Arc::new(checkpoint), Tags::new(), &template)
}

#[test]
fn a_complete_checkpoint_is_found_by_its_id_in_its_namespace() {
    let known = found(&json!({}), "u").unwrap();
    let record = known.record();
    assert_eq!(record.reference("team"), KEY);
    assert!(record.is_meant_by(&KEY.parse().unwrap()));
    assert!(record.saved.contents.has_memory());
    assert_eq!(known.init().unwrap().access_token, "old");
    let (checkpoint, _) = saved(&json!({}));
    assert!(!index(&checkpoint).contains(&id_index("other", KEY)));
}

/// Versions of the name `work`, each with its tags.
fn named(versions: &[(&str, &str)]) -> Saves {
    let saves = Saves::new();
    for (number, (name, tags)) in versions.iter().enumerate() {
        let (mut checkpoint, mut template) = saved(&json!({}));
        let id = format!("{number:032x}-{number:024x}");
        checkpoint.status.as_mut().unwrap().checkpoint_id = id;
        for metadata in [&mut checkpoint.metadata, &mut template.metadata] {
            metadata.name = Some((*name).to_owned());
        }
        checkpoint.metadata.uid = Some((*name).to_owned());
        template.metadata.owner_references.as_mut().unwrap()[0].uid = (*name).to_owned();
        let annotations = checkpoint.metadata.annotations.as_mut().unwrap();
        annotations.insert("shoal.dev/snapshot-name".to_owned(), "work".to_owned());
        annotations.insert("shoal.dev/snapshot-tags".to_owned(), (*tags).to_owned());
        saves.checkpoints.put(checkpoint);
        saves.templates.put(template);
    }
    saves
}

#[test]
fn a_name_means_the_version_that_has_its_tag() {
    let saves = named(&[
        (
            "old",
            r#"{"default": "2026-01-02T03:04:05Z", "v1": "2026-01-02T03:04:05Z"}"#,
        ),
        ("new", r#"{"default": "2026-01-02T03:04:06Z"}"#),
    ]);
    let meant = |text: &str| {
        let found = saves.find("team", text)?;
        found.checkpoint().metadata.name.clone()
    };
    assert_eq!(meant("work").as_deref(), Some("new"));
    assert_eq!(meant("team/work:default").as_deref(), Some("new"));
    assert_eq!(meant("Work:v1").as_deref(), Some("old"));
    for other in ["work:v2", "other/work", "other", "work:"] {
        assert_eq!(meant(other), None, "{other}");
    }
    assert!(saves.find("other", "work").is_none());
    let id = format!("{:032x}-{:024x}", 0, 0);
    assert_eq!(meant(&id).as_deref(), Some("old"), "the id of a version");
    let references: Vec<_> = saves
        .list("team")
        .iter()
        .map(|saved| saved.record().reference("team"))
        .collect();
    assert_eq!(
        references,
        ["team/work:default", "team/work:v1"],
        "the newest first"
    );
}

#[test]
fn a_version_without_a_tag_is_not_listed() {
    let saves = named(&[
        ("old", r#"{"default": "2026-01-02T03:04:05Z"}"#),
        ("new", r#"{"default": "2026-01-02T03:04:06Z"}"#),
    ]);
    let listed = saves.list("team");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].checkpoint().metadata.name.as_deref(), Some("new"));
}

#[test]
fn what_is_not_complete_or_not_its_own_is_not_found() {
    for change in [
        json!({"/status/phase": "Creating"}),
        json!({"/status/phase": "Failed"}),
        json!({"/metadata/deletionTimestamp": "2026-01-02T03:04:05Z"}),
        json!({"/spec/ttlAfterFinished": "30m"}),
    ] {
        assert!(found(&change, "u").is_none(), "{change}");
    }
    assert!(found(&json!({}), "another").is_none());
    assert!(found(&json!({"/spec/ttlAfterFinished": "100000d"}), "u").is_some());
}

#[test]
fn ids_are_told_from_names() {
    assert!(is_id(KEY));
    for other in [
        "code",
        "",
        "0123-4567",
        &KEY.replace('a', "g"),
        &format!("{KEY}0"),
    ] {
        assert!(!is_id(other), "{other}");
    }
}
