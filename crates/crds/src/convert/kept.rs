//! The fields of one version that the other keeps in annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ConversionError;

/// Removes an annotation, and the map of annotations if it was the only one.
pub(super) fn remove(metadata: &mut ObjectMeta, key: &str) -> Option<String> {
    let annotations = metadata.annotations.as_mut()?;
    let value = annotations.remove(key);
    if annotations.is_empty() {
        metadata.annotations = None;
    }
    value
}

/// Removes an annotation and reads it. A client may have damaged it, so an unreadable one counts as
/// missing.
pub(super) fn take<T: DeserializeOwned>(metadata: &mut ObjectMeta, key: &str) -> Option<T> {
    serde_json::from_str(&remove(metadata, key)?).ok()
}

pub(super) fn put(metadata: &mut ObjectMeta, key: &str, value: String) {
    metadata
        .annotations
        .get_or_insert_default()
        .insert(key.to_owned(), value);
}

/// The whole object as JSON, for an annotation of itself. The annotation `key` and the field
/// managers, which describe the object that carries it, are left out.
pub(super) fn whole<T: Serialize + k8s_openapi::Resource>(
    object: &T,
    key: &str,
) -> Result<String, ConversionError> {
    let invalid = |source| ConversionError::Invalid {
        kind: T::KIND,
        source,
    };
    let mut json = serde_json::to_value(object).map_err(invalid)?;
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove(key);
        }
    }
    Ok(json.to_string())
}
