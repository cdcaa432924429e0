//! Body of `POST /init`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;

use crate::token::{AccessToken, InvalidAccessToken};

/// Settings that the control plane sends at the start of a sandbox, after every resume, and when a
/// clone gets its own identity. Absent fields keep their value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitRequest {
    /// Environment variables of every process, replacing those of the previous request. The names
    /// in [`IDENTITY_VARIABLES`] are also written to files for processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// New access token. Absent, null and empty keep the current one.
    #[serde(
        default,
        deserialize_with = "token_unless_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub access_token: Option<AccessToken>,
    /// Exempts programs in the sandbox from the token (Shoal extension). Callers outside still need
    /// it: for unsecured sandboxes the gateway adds it. When absent it is false if the request sets
    /// a token, else unchanged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Memory of the sandbox in MiB, if it can change at run time (Shoal extension).
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// Current time. Sets the clock; a request older than the last one is ignored.
    #[serde(
        default,
        with = "time::serde::rfc3339::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub timestamp: Option<OffsetDateTime>,
    /// User of requests that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    /// Working directory of processes that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_workdir: Option<String>,
    /// Address of the events service inside the sandbox.
    #[serde(
        default,
        rename = "hyperloopIP",
        skip_serializing_if = "Option::is_none"
    )]
    pub hyperloop_ip: Option<std::net::IpAddr>,
    /// Id of this run of the sandbox.
    #[serde(
        default,
        rename = "lifecycleID",
        skip_serializing_if = "Option::is_none"
    )]
    pub lifecycle_id: Option<String>,
    /// CA certificates in PEM for processes to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// Network volumes. Ignored: Shoal mounts volumes from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<serde_json::Value>,
}

impl InitRequest {
    /// The settings of a daemon in a pod, as of now. An empty token keeps the current one.
    ///
    /// # Errors
    /// If the token is invalid.
    pub fn for_pod(
        variables: BTreeMap<String, String>,
        token: &str,
    ) -> Result<Self, InvalidAccessToken> {
        let token = (!token.is_empty()).then(|| AccessToken::parse(token));
        Ok(Self {
            timestamp: Some(OffsetDateTime::now_utc()),
            env_vars: Some(variables),
            access_token: token.transpose()?,
            ..Self::default()
        })
    }
}

/// Variables that identify the sandbox. They are kept when other variables are replaced, and each
/// is mirrored in a file `/run/e2b/.<name>`.
pub const IDENTITY_VARIABLES: [&str; 4] = [
    "E2B_SANDBOX",
    "E2B_SANDBOX_ID",
    "E2B_TEMPLATE_ID",
    "E2B_TEAM_ID",
];

/// Treats `""` as absent; some callers send it for a sandbox without a token.
fn token_unless_empty<'de, D>(deserializer: D) -> Result<Option<AccessToken>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    text.filter(|text| !text.is_empty())
        .map(|text| AccessToken::parse(text).map_err(serde::de::Error::custom))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_the_name_that_e2b_gave_it() {
        let request: InitRequest = serde_json::from_str(
            r#"{"envVars":{"A":"1"},"accessToken":"t","timestamp":"2026-01-02T03:04:05.678Z",
                "defaultUser":"user","defaultWorkdir":"/w","hyperloopIP":"192.0.2.1",
                "lifecycleID":"l","caBundle":"pem","volumeMounts":[{"path":"/v"}],"more":1}"#,
        )
        .unwrap();
        assert_eq!(request.env_vars.as_ref().unwrap()["A"], "1");
        assert!(request.access_token.as_ref().unwrap().matches(b"t"));
        assert_eq!(request.timestamp.unwrap().unix_timestamp(), 1_767_323_045);
        assert_eq!(request.default_user.as_deref(), Some("user"));
        assert_eq!(request.default_workdir.as_deref(), Some("/w"));
        assert_eq!(request.hyperloop_ip.unwrap().to_string(), "192.0.2.1");
        assert_eq!(request.lifecycle_id.as_deref(), Some("l"));
        assert_eq!(request.ca_bundle.as_deref(), Some("pem"));
        assert!(request.volume_mounts.is_some());
    }

    #[test]
    fn an_empty_token_is_no_token_and_a_bad_one_is_refused() {
        let empty: InitRequest = serde_json::from_str(r#"{"accessToken":""}"#).unwrap();
        assert_eq!(empty, InitRequest::default());
        let null: InitRequest = serde_json::from_str(r#"{"accessToken":null}"#).unwrap();
        assert_eq!(null, InitRequest::default());
        assert!(serde_json::from_str::<InitRequest>(r#"{"accessToken":"a b"}"#).is_err());
    }

    #[test]
    fn an_empty_request_is_an_empty_object() {
        assert_eq!(
            serde_json::to_string(&InitRequest::default()).unwrap(),
            "{}"
        );
    }
}
