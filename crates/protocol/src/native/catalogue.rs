//! The catalogue of templates under `/api/v1/config/templates`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The header that names the version an edit was made on: `If-Match: "3"`.
pub const IF_MATCH: &str = "if-match";

/// The catalogue in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalogue {
    /// How often it was replaced; 0 when there never was one.
    pub version: u64,
    /// Since when it is in force; none when there never was one.
    pub updated_at: Option<String>,
    /// Its entries.
    pub templates: Vec<Value>,
    /// What is odd about them.
    #[serde(default)]
    pub warnings: Vec<CatalogueWarning>,
    /// The last edit that was not taken, until one is.
    #[serde(default)]
    pub last_error: Option<RefusedCatalogue>,
}

/// What an operator may want to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogueWarning {
    /// Which entry.
    pub name: String,
    /// Which field.
    pub field: String,
    /// What is odd about it, and what to do.
    pub message: String,
}

/// An edit that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedCatalogue {
    /// When.
    pub at: String,
    /// Where it came from.
    pub source: String,
    /// What is wrong with it.
    pub message: String,
}

/// Replaces the catalogue. Also accepts a bare list of entries, as Agent-Sandbox does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceCatalogue {
    /// The version that the edit was made on; whichever is in force when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// All entries.
    pub templates: Value,
}

/// What a template that is asked for means, and what its sandboxes are when a request says no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedTemplate {
    /// What was asked for, if anything was.
    pub asked: Option<String>,
    /// What it is: `template`, `snapshot`, `entry`, `dynamic` or `image`.
    pub kind: String,
    /// What the template is called.
    pub name: Option<String>,
    /// The id under which its sandboxes are known.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// What the pattern found for `<name>` and `<version>`.
    #[serde(default)]
    pub captured: Option<CapturedParts>,
    /// Whether the image is on the server's machine. What an image says is not among the values
    /// when it is not.
    pub image_here: bool,
    /// Every value, and who said it; `image` is the first.
    pub values: Vec<ResolvedValue>,
    /// The entry of the catalogue, if it is one.
    #[serde(default)]
    pub entry: Option<Value>,
}

/// A value, and who said it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedValue {
    /// Which, in the words of the catalogue.
    pub field: String,
    /// What it is.
    pub value: Value,
    /// Who said it: `request`, `template`, `image` or `default`.
    pub from: String,
}

/// What a pattern found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedParts {
    /// For `<name>`.
    pub name: String,
    /// For `<version>`.
    pub version: String,
}
