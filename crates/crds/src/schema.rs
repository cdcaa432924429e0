//! The OpenAPI schemas of the kinds.

mod core;
mod fields;
mod kinds;
mod kruise;

use serde_json::Value;

/// A kind, as its definition says.
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_name: &'static str,
    pub(crate) namespaced: bool,
    /// The versions. The last is stored; those before it are deprecated and converted by the webhook.
    pub(crate) versions: Vec<(&'static str, Version)>,
}

/// One version of a kind.
pub(crate) struct Version {
    pub(crate) spec: Value,
    pub(crate) status: Option<Value>,
    /// Name, type and path of each printer column.
    pub(crate) columns: Vec<(&'static str, &'static str, &'static str)>,
    pub(crate) scale: bool,
}

/// All kinds.
pub(crate) fn kinds() -> Vec<Kind> {
    let mut kinds = kinds::kinds();
    kinds.extend(kruise::kinds());
    kinds
}
