//! The object that controls another.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use shoal_crds::names::label;

/// The controller of an object, seen by an object that could be it.
#[derive(Debug, PartialEq)]
pub(crate) enum Owner<'a> {
    /// The asking object.
    Own,
    /// None.
    Nobody,
    /// Another object.
    Other(&'a OwnerReference),
}

/// The controller of an object.
pub(crate) fn controller(object: &ObjectMeta) -> Option<&OwnerReference> {
    object
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// How an object is related to the one with `uid`.
pub(crate) fn owner<'a>(object: &'a ObjectMeta, uid: &str) -> Owner<'a> {
    match controller(object) {
        None => Owner::Nobody,
        Some(owner) if owner.uid == uid => Owner::Own,
        Some(owner) => Owner::Other(owner),
    }
}

/// Whether the controller is of a kind, in any version of its group.
pub(crate) fn is_of_kind(owner: &OwnerReference, group: &str, kind: &str) -> bool {
    owner.kind == kind
        && owner
            .api_version
            .split_once('/')
            .is_some_and(|(of, _)| of == group)
}

/// Whether a sandbox may adopt an object without a controller: it carries the permission, or the label
/// that only this sandbox's objects have.
pub(crate) fn may_adopt(object: &ObjectMeta, name_hash: &str) -> bool {
    let label = |key: &str| object.labels.as_ref().and_then(|labels| labels.get(key));
    label(label::ADOPTABLE).is_some_and(|value| value == "true")
        || label(label::SANDBOX_NAME_HASH).is_some_and(|value| value == name_hash)
}

/// Tells about a foreign controller, as messages do.
pub(crate) fn describe(owner: &OwnerReference) -> String {
    format!("{}/{} (UID: {})", owner.kind, owner.name, owner.uid)
}

/// The owner references of an object with one more.
pub(crate) fn with_owner(object: &ObjectMeta, owner: serde_json::Value) -> Vec<serde_json::Value> {
    let known = object.owner_references.iter().flatten();
    known
        .filter_map(|known| serde_json::to_value(known).ok())
        .chain([owner])
        .collect()
}
