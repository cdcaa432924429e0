//! The catalogue of templates under `/api/v1/config/templates`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Header with the version that an edit is based on: `If-Match: "3"`.
pub const IF_MATCH: &str = "if-match";

/// The current catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Catalogue {
    /// Version: the number of replacements, 0 without a catalogue.
    pub version: u64,
    /// Time of the last replacement; absent without a catalogue.
    pub updated_at: Option<String>,
    /// Entries.
    pub templates: Vec<Value>,
    /// Warnings about the entries.
    #[serde(default)]
    pub warnings: Vec<CatalogueWarning>,
    /// The last rejected edit, until one is accepted.
    #[serde(default)]
    pub last_error: Option<RefusedCatalogue>,
}

/// A warning for the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CatalogueWarning {
    /// Entry.
    pub name: String,
    /// Field.
    pub field: String,
    /// The problem and its remedy.
    pub message: String,
}

/// A rejected edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedCatalogue {
    /// Time.
    pub at: String,
    /// Source.
    pub source: String,
    /// Error.
    pub message: String,
}

/// Replaces the catalogue. Also accepts a bare list of entries, as Agent-Sandbox does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplaceCatalogue {
    /// Version that the edit is based on; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// All entries.
    pub templates: Value,
}

/// The blueprint: what entries of the catalogue are filled into, where sandboxes are pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blueprint {
    /// ReplicaSet in YAML.
    pub blueprint: String,
    /// Whether it is the installation's own, and not the default.
    pub own: bool,
}

/// Replaces the blueprint. Also accepts the YAML itself as the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplaceBlueprint {
    /// ReplicaSet in YAML; the default if empty.
    pub blueprint: String,
}

/// Resolution of a template reference, with the default values of its sandboxes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResolvedTemplate {
    /// The requested reference, if any.
    pub asked: Option<String>,
    /// Type: `template`, `snapshot`, `entry`, `dynamic` or `image`.
    pub kind: String,
    /// Template name.
    pub name: Option<String>,
    /// Template id of its sandboxes.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Captures of the pattern for `<name>` and `<version>`.
    #[serde(default)]
    pub captured: Option<CapturedParts>,
    /// Whether the image is on the server's machine. Otherwise the values lack those of the image.
    pub image_here: bool,
    /// All values with their sources; `image` is the first.
    pub values: Vec<ResolvedValue>,
    /// The catalogue entry, if it is one.
    #[serde(default)]
    pub entry: Option<Value>,
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResolvedValue {
    /// Field name in the catalogue.
    pub field: String,
    /// Value.
    pub value: Value,
    /// Source: `request`, `template`, `image` or `default`.
    pub from: String,
}

/// Captures of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapturedParts {
    /// Capture of `<name>`.
    pub name: String,
    /// Capture of `<version>`.
    pub version: String,
}
