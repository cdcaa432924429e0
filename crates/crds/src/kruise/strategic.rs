//! Strategic merge patches of pod templates: as JSON merge patches, but lists of named elements are merged by name.
//!
//! The rules are those of the API server for pods. A template is stored as free JSON, so the API server cannot apply
//! them itself.

use serde_json::{Map, Value};

/// The field that names the elements of a list, for the lists of a pod that are merged. Others are replaced.
const MERGE_KEYS: [(&str, &str); 14] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("imagePullSecrets", "name"),
    ("resourceClaims", "name"),
    ("schedulingGates", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("env", "name"),
    ("ports", "containerPort"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("claims", "name"),
];

/// The directive of an element or object of a patch, in place of a merge.
const DIRECTIVE: &str = "$patch";

/// Checks that a patch can be applied as the API server would.
///
/// # Errors
/// Names the field: an element of a list without the field that names it, or a directive that is not known here.
pub fn check(patch: &Value) -> Result<(), String> {
    let Value::Object(fields) = patch else {
        return Ok(());
    };
    for (field, change) in fields {
        let known = field == DIRECTIVE || field.starts_with("$setElementOrder/");
        if field.starts_with('$') && !known {
            return Err(format!("the directive {field} is not supported"));
        }
        let (Value::Array(changes), Some(key)) = (change, merge_key(field)) else {
            check(change)?;
            continue;
        };
        for change in changes {
            if change.get(key).is_none() && !is_directive(change) {
                return Err(format!("an element of {field} has no {key}"));
            }
            check(change)?;
        }
    }
    Ok(())
}

/// Applies a patch.
pub fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if patch.get(DIRECTIVE).is_some_and(|what| what == "replace") {
        *target = Value::Object(without_directives(patch));
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else {
        return;
    };
    for (field, change) in patch {
        if field.starts_with('$') {
            continue;
        }
        match (change, merge_key(field)) {
            (Value::Null, _) => drop(target.remove(field)),
            (change, _) if deletes(change) => drop(target.remove(field)),
            (Value::Array(changes), Some(key)) => {
                let list = target.entry(field.clone()).or_insert(Value::Null);
                merge_list(list, changes, key);
            }
            _ => apply(target.entry(field.clone()).or_insert(Value::Null), change),
        }
    }
}

fn merge_key(field: &str) -> Option<&'static str> {
    let mut known = MERGE_KEYS.iter();
    let (_, key) = known.find(|(name, _)| *name == field)?;
    Some(key)
}

fn deletes(change: &Value) -> bool {
    change.get(DIRECTIVE).is_some_and(|what| what == "delete")
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    let kept = patch.iter().filter(|(field, _)| !field.starts_with('$'));
    kept.map(|(field, value)| (field.clone(), value.clone()))
        .collect()
}

/// Merges elements by their key. New ones follow the known ones, in the patch's order.
fn merge_list(list: &mut Value, changes: &[Value], key: &str) {
    let is_replacement =
        |change: &Value| change.get(DIRECTIVE).is_some_and(|what| what == "replace");
    let mut elements = match list {
        Value::Array(elements) if !changes.iter().any(is_replacement) => std::mem::take(elements),
        _ => Vec::new(),
    };
    for change in changes {
        let named = change.get(key);
        let known = elements
            .iter()
            .position(|element| named.is_some() && element.get(key) == named);
        match known {
            Some(known) if deletes(change) => drop(elements.remove(known)),
            Some(known) => apply(&mut elements[known], change),
            None if deletes(change) || is_directive(change) => {}
            None => {
                let mut element = Value::Null;
                apply(&mut element, change);
                elements.push(element);
            }
        }
    }
    *list = Value::Array(elements);
}

/// Whether an element is a directive for the whole list, and nothing else.
fn is_directive(change: &Value) -> bool {
    let fields = change.as_object();
    fields.is_some_and(|fields| fields.len() == 1 && fields.contains_key(DIRECTIVE))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn applied(mut target: Value, patch: &Value) -> Value {
        apply(&mut target, patch);
        target
    }

    #[test]
    fn containers_are_merged_by_name() {
        let template = json!({"spec": {"containers": [
            {"name": "main", "image": "i:1", "env": [{"name": "A", "value": "1"}]},
            {"name": "side", "image": "s:1"},
        ]}});
        let patch = json!({"spec": {"containers": [
            {"name": "main", "image": "i:2", "env": [{"name": "B", "value": "2"}]},
            {"name": "new", "image": "n:1"},
        ]}});
        let expected = json!({"spec": {"containers": [
            {"name": "main", "image": "i:2", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "side", "image": "s:1"},
            {"name": "new", "image": "n:1"},
        ]}});
        assert_eq!(applied(template, &patch), expected);
    }

    #[test]
    fn lists_without_a_key_are_replaced() {
        let template = json!({"spec": {"containers": [{"name": "main", "command": ["a", "b"]}], "tolerations": [{"key": "x"}]}});
        let patch = json!({"spec": {"containers": [{"name": "main", "command": ["c"]}], "tolerations": []}});
        assert_eq!(applied(template, &patch), patch);
    }

    #[test]
    fn null_and_directives_remove() {
        let template = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}},
            "spec": {"containers": [{"name": "main"}, {"name": "side"}], "volumes": [{"name": "v"}], "nodeName": "n"},
        });
        let patch = json!({
            "metadata": {"labels": {"a": null}},
            "spec": {
                "containers": [{"name": "side", "$patch": "delete"}, {"name": "absent", "$patch": "delete"}],
                "volumes": [{"$patch": "replace"}, {"name": "w"}],
                "nodeName": null,
                "$setElementOrder/containers": [{"name": "main"}],
            },
        });
        let expected = json!({
            "metadata": {"labels": {"b": "2"}},
            "spec": {"containers": [{"name": "main"}], "volumes": [{"name": "w"}]},
        });
        assert_eq!(applied(template, &patch), expected);
    }

    #[test]
    fn an_object_can_be_replaced_or_removed() {
        let target =
            json!({"resources": {"limits": {"cpu": "1"}}, "securityContext": {"runAsUser": 1}});
        let patch = json!({
            "resources": {"$patch": "replace", "requests": {"cpu": "2"}},
            "securityContext": {"$patch": "delete"},
        });
        assert_eq!(
            applied(target, &patch),
            json!({"resources": {"requests": {"cpu": "2"}}})
        );
    }

    #[test]
    fn what_the_api_server_refuses_is_told() {
        let containers = |element: Value| json!({"spec": {"containers": [element]}});
        for right in [
            json!({"metadata": null}),
            containers(json!({"name": "main", "env": [{"$patch": "replace"}]})),
            json!({"spec": {"$setElementOrder/containers": [{"name": "main"}], "tolerations": [{"key": "x"}]}}),
        ] {
            assert_eq!(check(&right), Ok(()));
        }
        for (wrong, word) in [
            (containers(json!({"image": "i"})), "containers"),
            (containers(json!("main")), "containers"),
            (
                containers(json!({"name": "main", "env": [{"value": "1"}]})),
                "env",
            ),
            (json!({"spec": {"$retainKeys": ["x"]}}), "$retainKeys"),
        ] {
            let why = check(&wrong).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }

    fn containers() -> impl Strategy<Value = Value> {
        let container = ("[a-c]", "[x-z]", proptest::option::of("[1-3]")).prop_map(
            |(name, image, value)| match value {
                Some(value) => {
                    json!({"name": name, "image": image, "env": [{"name": "V", "value": value}]})
                }
                None => json!({"name": name, "image": image}),
            },
        );
        proptest::collection::btree_map("[a-c]", container, 0..4).prop_map(|by_name| {
            let named = by_name.into_iter().map(|(name, mut container)| {
                container["name"] = name.into();
                container
            });
            json!({"spec": {"containers": named.collect::<Vec<_>>()}})
        })
    }

    proptest! {
        /// An update looks at each sandbox many times, and must see when it has nothing left to change.
        #[test]
        fn a_patch_that_was_applied_changes_nothing(target in containers(), patch in containers()) {
            let once = applied(target, &patch);
            prop_assert_eq!(applied(once.clone(), &patch), once);
        }

        #[test]
        fn whatever_a_patch_is_it_can_be_applied(patch in containers(), field in "\\$?[a-z]{0,4}") {
            let odd = json!({"spec": {"containers": [1, null, {field: "delete"}, [patch]]}});
            applied(json!({"spec": {"containers": "none"}}), &odd);
        }
    }
}
