//! JSON merge patches.

use serde_json::{Map, Value};

/// The merge patch that turns `from` into `to`, if they differ. Arrays are replaced as a whole.
pub(crate) fn between(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let mut patch = Map::new();
            for (key, value) in to {
                match from.get(key) {
                    Some(old) => {
                        if let Some(change) = between(old, value) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None => {
                        patch.insert(key.clone(), value.clone());
                    }
                }
            }
            for key in from.keys().filter(|key| !to.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (from, to) if from == to => None,
        (_, to) => Some(to.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_has_only_what_differs() {
        let from = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1]});
        let to = json!({"a": 1, "b": {"c": 4}, "e": [1, 2]});
        assert_eq!(
            between(&from, &to),
            Some(json!({"b": {"c": 4, "d": null}, "e": [1, 2]}))
        );
        assert_eq!(between(&from, &from), None);
    }
}
