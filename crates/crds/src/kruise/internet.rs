//! The network policy that closes the internet to sandboxes whose users asked for that.
//!
//! The operator keeps one in each namespace with pools. Policies add up: this one allows nothing, so it takes nothing
//! away from the cluster's other policies.

use serde_json::{Value, json};

use super::names::label;

/// Its name.
pub const NO_INTERNET_POLICY: &str = "shoal-no-internet";

/// Its specification, as the API server stores it.
#[must_use]
pub fn no_internet_policy() -> Value {
    json!({
        "podSelector": {"matchLabels": {label::ALLOW_INTERNET_ACCESS: "false"}},
        "policyTypes": ["Egress"],
    })
}
