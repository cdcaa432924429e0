use std::collections::BTreeMap;

use kube::api::ObjectMeta;

use super::*;

const GOOD: &str = r#"[{"name": "code", "image": "example.org/code:1", "description": "d"}]"#;

fn map(version: u32, entries: &str, blueprint: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            (ENTRIES.to_owned(), entries.to_owned()),
            (BLUEPRINT.to_owned(), blueprint.to_owned()),
        ])),
        ..ConfigMap::default()
    }
}

fn catalogue() -> Catalogue {
    let config = kube::Config::new("http://localhost:1".parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let map = SharedConfigMap::new(client, "system", "templates");
    Catalogue::new(map, Arc::new(Watched::new(|_| Vec::new())), Vec::new())
}

fn names(catalogue: &Catalogue) -> Vec<String> {
    let state = catalogue.state();
    let entries = state.in_force.catalogue.entries().iter();
    entries.map(|entry| entry.name.to_string()).collect()
}

#[tokio::test]
async fn what_cannot_be_read_leaves_the_last_good_one_in_force() {
    let catalogue = catalogue();
    let changes = catalogue.changes();
    catalogue.load(&map(5, GOOD, ""));
    assert_eq!(
        (names(&catalogue).len(), catalogue.state().in_force.version),
        (1, 5)
    );
    assert!(changes.has_changed().unwrap());
    for (version, entries, blueprint, said) in [
        (6, "{", "", "no JSON list"),
        (7, GOOD, "kind: Pod", "renders no ReplicaSet"),
        (8, r#"[{"name": "code", "description": "d"}]"#, "", "image"),
        (
            9,
            r#"[{"name": "b", "template": "base", "user": "1000", "description": "d"}]"#,
            "",
            "the pod that was saved",
        ),
    ] {
        catalogue.load(&map(version, entries, blueprint));
        assert_eq!(names(&catalogue), ["code"], "{entries}");
        let state = catalogue.state();
        assert!(state.refused.unwrap().message.contains(said), "{said}");
        assert_eq!(
            state.blueprint.text(),
            blueprint::DEFAULT,
            "entries and blueprint are one"
        );
    }
    catalogue.load(&map(10, "", ""));
    assert_eq!(names(&catalogue).len(), 0);
    assert_eq!(catalogue.state().refused, None);
}

#[tokio::test]
async fn an_older_state_changes_nothing() {
    let catalogue = catalogue();
    catalogue.load(&map(9, GOOD, ""));
    catalogue.load(&map(8, "[]", ""));
    assert_eq!(names(&catalogue), ["code"]);
}

#[test]
fn entries_that_would_be_one_object_are_refused() {
    let two = r#"[{"name": "a-b", "image": "i", "description": "d"}, {"name": "A-b", "image": "i", "description": "d"}]"#;
    assert!(Checked::of(two, "").is_err());
}
