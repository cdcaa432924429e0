//! What somebody says of a sandbox's network; the rest comes from elsewhere.

use serde::{Deserialize, Serialize};

use super::{Egress, HostMask, InvalidRule, NetworkPolicy};

/// A policy of which parts may not be said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskedNetwork {
    /// Outbound, as one: half of somebody's rules would be nobody's.
    pub egress: Option<Egress>,
    /// The internet was said to be open, as some clients do unasked: shown, and nothing more, as no
    /// template could close it otherwise.
    #[serde(default)]
    pub said_open: bool,
    /// Whether ports answer without the traffic access token.
    pub allow_public_traffic: Option<bool>,
    /// What servers in the sandbox see as `Host`.
    pub mask_request_host: Option<HostMask>,
}

impl AskedNetwork {
    /// Checks what was said.
    ///
    /// # Errors
    /// See [`Egress::validate`].
    pub fn validate(&self) -> Result<(), InvalidRule> {
        self.egress.as_ref().map_or(Ok(()), Egress::validate)
    }
}

impl From<NetworkPolicy> for AskedNetwork {
    /// All of it is said.
    fn from(policy: NetworkPolicy) -> Self {
        Self {
            said_open: policy.egress.internet == Some(true),
            egress: Some(policy.egress),
            allow_public_traffic: Some(policy.allow_public_traffic),
            mask_request_host: policy.mask_request_host,
        }
    }
}
