//! Checks of the machine.

use serde::{Deserialize, Serialize};

/// A check of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Subject.
    pub what: String,
    /// `good`, `warning` (a feature is missing or degraded) or `missing` (the server would not start again).
    pub health: String,
    /// Details.
    pub detail: String,
    /// Command or instruction that fixes it.
    #[serde(default)]
    pub cure: Option<String>,
}
