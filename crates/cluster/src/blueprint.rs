//! The blueprint: a ReplicaSet in YAML, which an entry of the catalogue is filled into.
//!
//! Values are set in the parsed document, never in its text: no value of an entry can become a field of the pod.

mod render;

use serde_json::{Map, Value};
use shoal_core::catalogue::{Entry, EntryName};
use shoal_crds::kruise::names::{SBX_PREFIX, is_key, is_label_value, is_reserved};
use shoal_crds::parts::Pairs;

pub(crate) use self::render::{Rendered, can_become, check, is_same, label, requested};

/// The blueprint of an installation without its own.
pub(crate) const DEFAULT: &str = include_str!("blueprint/default.yaml");

/// The largest blueprint, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// The container of the sandbox, if the blueprint has several: else the first is.
const MAIN: &str = "sandbox";

/// Labels of ReplicaSets that are set here.
const OWN_LABELS: [&str; 2] = ["owner", "sandbox"];

/// Why a text is no blueprint, or why an entry does not fit into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidBlueprint(String);

impl InvalidBlueprint {
    /// Why an entry cannot be carried out.
    pub(crate) fn of(entry: &Entry, why: &str) -> Self {
        Self(format!("template {:?}: {why}", entry.name.as_str()))
    }

    /// Two entries would have one object.
    pub(crate) fn names(one: &EntryName, other: &EntryName) -> Self {
        Self(format!(
            "templates {:?} and {:?} are one object in a cluster: rename one",
            other.as_str(),
            one.as_str()
        ))
    }
}

fn invalid<T>(told: impl Into<String>) -> Result<T, InvalidBlueprint> {
    Err(InvalidBlueprint(told.into()))
}

/// A blueprint that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Blueprint {
    text: String,
    labels: Pairs,
    annotations: Pairs,
    /// The specification of the pod, with the main container first.
    pod: Map<String, Value>,
}

impl Blueprint {
    /// Reads a blueprint.
    ///
    /// # Errors
    /// If the text is no valid blueprint.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidBlueprint> {
        if text.len() > BYTES_MAX {
            return invalid(format!(
                "the blueprint has {} bytes: at most {BYTES_MAX} are read",
                text.len()
            ));
        }
        if text.contains("{{") {
            return invalid(
                "the blueprint has placeholders (`{{`): leave them out, the values of an entry are set by field",
            );
        }
        let parsed: Value = serde_saphyr::from_str(text).map_err(|error| {
            let told = error.to_string();
            let line = told.lines().next().unwrap_or_default().to_owned();
            InvalidBlueprint(format!("the blueprint is no YAML: {line}"))
        })?;
        let text_of = |pointer: &str| parsed.pointer(pointer).and_then(Value::as_str);
        if (text_of("/apiVersion"), text_of("/kind")) != (Some("apps/v1"), Some("ReplicaSet")) {
            return invalid(
                "the blueprint renders no ReplicaSet: it needs `apiVersion: apps/v1` and `kind: ReplicaSet`",
            );
        }
        only(&parsed, "", &["apiVersion", "kind", "metadata", "spec"])?;
        only(
            &parsed,
            "/metadata",
            &["name", "namespace", "labels", "annotations"],
        )?;
        only(&parsed, "/spec", &["replicas", "selector", "template"])?;
        only(&parsed, "/spec/template", &["metadata", "spec"])?;
        if parsed
            .pointer("/spec/replicas")
            .is_some_and(|size| *size != 1)
        {
            return invalid("`spec.replicas`: a sandbox is one pod, so it is 1");
        }
        let Some(Value::Object(pod)) = parsed.pointer("/spec/template/spec") else {
            return invalid("the blueprint has no `spec.template.spec`: what is the pod?");
        };
        let mut labels = pairs(&parsed, "/metadata/labels")?;
        labels.extend(pairs(&parsed, "/spec/template/metadata/labels")?);
        let mut annotations = pairs(&parsed, "/metadata/annotations")?;
        annotations.extend(pairs(&parsed, "/spec/template/metadata/annotations")?);
        check_marks(&labels, &annotations)?;
        Ok(Self {
            text: text.to_owned(),
            labels,
            annotations,
            pod: checked_pod(pod.clone())?,
        })
    }

    /// The text that it was read from.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Refuses fields that would be lost.
fn only(parsed: &Value, pointer: &str, known: &[&str]) -> Result<(), InvalidBlueprint> {
    let place = pointer.trim_start_matches('/').replace('/', ".");
    let fields = match parsed.pointer(pointer) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(fields)) => fields,
        Some(_) => return invalid(format!("`{place}` is no object")),
    };
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => invalid(format!(
            "`{}`: a blueprint has {} here",
            format!("{place}.{key}").trim_start_matches('.'),
            known.join(", ")
        )),
        None => Ok(()),
    }
}

fn pairs(parsed: &Value, pointer: &str) -> Result<Pairs, InvalidBlueprint> {
    let place = pointer.trim_start_matches('/').replace('/', ".");
    let Some(found) = parsed.pointer(pointer).filter(|found| !found.is_null()) else {
        return Ok(Pairs::new());
    };
    let Some(found) = found.as_object() else {
        return invalid(format!("`{place}` is no object"));
    };
    found
        .iter()
        .map(|(key, value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            _ => invalid(format!("`{place}.{key}` is no text: quote it")),
        })
        .collect()
}

/// Refuses labels and annotations that steer, and those that are none.
fn check_marks(labels: &Pairs, annotations: &Pairs) -> Result<(), InvalidBlueprint> {
    let all = labels.keys().chain(annotations.keys());
    for key in all {
        if is_steering(key) || OWN_LABELS.contains(&key.as_str()) {
            return invalid(format!(
                "label or annotation `{key}` is reserved: it is set for each sandbox"
            ));
        }
        if !is_key(key) {
            return invalid(format!("`{key}` cannot be a label or an annotation"));
        }
    }
    match labels.iter().find(|(_, value)| !is_label_value(value)) {
        Some((key, _)) => invalid(format!(
            "label `{key}`: its value has other characters than a label"
        )),
        None => Ok(()),
    }
}

/// Whether a label or an annotation decides what happens to a sandbox.
pub(crate) fn is_steering(key: &str) -> bool {
    is_reserved(key) || key.starts_with(SBX_PREFIX) || key.contains(".agents.kruise.io/")
}

fn checked_pod(mut pod: Map<String, Value>) -> Result<Map<String, Value>, InvalidBlueprint> {
    if pod
        .get("restartPolicy")
        .is_some_and(|policy| policy != "Always")
    {
        return invalid("`restartPolicy`: the pods of a ReplicaSet have `Always`");
    }
    let Some(containers) = pod.get_mut("containers").and_then(Value::as_array_mut) else {
        return invalid("the pod of the blueprint has no containers");
    };
    if containers.is_empty() || !containers.iter().all(Value::is_object) {
        return invalid("the pod of the blueprint has no containers");
    }
    let main = containers
        .iter()
        .position(|one| one.get("name").is_some_and(|name| name == MAIN));
    let main = containers.remove(main.unwrap_or_default());
    containers.insert(0, main);
    for container in containers.iter_mut().skip(1) {
        for field in ["name", "image"] {
            if !container.get(field).is_some_and(Value::is_string) {
                return invalid(format!(
                    "a container beside that of the sandbox has no `{field}`"
                ));
            }
        }
    }
    if let Some(main) = containers
        .first_mut()
        .filter(|main| main.get("name").is_none())
    {
        main["name"] = MAIN.into();
    }
    Ok(pod)
}

#[cfg(test)]
mod tests;
