//! The network policy of a sandbox in E2B's notation.

use axum::Extension;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use shoal_core::auth::Principal;
use shoal_core::network::{AddressRange, Egress, InvalidRule, MAX_RULES, RequestedNetwork};

use super::sandbox_id;
use crate::backend::Backend;
use crate::body::RequiredBody;
use crate::error::ApiError;

/// The rules in a request. A list that is null is absent.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkBody {
    #[serde(default)]
    allow_public_traffic: Option<bool>,
    #[serde(default)]
    allow_out: Option<Vec<String>>,
    #[serde(default)]
    deny_out: Option<Vec<String>>,
    #[serde(default)]
    dns_servers: Option<Vec<String>>,
    #[serde(default)]
    mask_request_host: Option<String>,
    #[serde(default)]
    egress_proxy: Option<Value>,
    #[serde(default)]
    https_ports: Option<Value>,
    #[serde(default)]
    rules: Option<Value>,
    /// Said here when the rules of a running sandbox are replaced.
    #[serde(default, rename = "allow_internet_access")]
    internet: Option<bool>,
}

impl NetworkBody {
    /// The outbound rules; `internet` is the separate field of the request.
    pub(crate) fn egress(&self, internet: Option<bool>) -> Result<Egress, ApiError> {
        for (name, value) in [
            ("egressProxy", &self.egress_proxy),
            ("httpsPorts", &self.https_ports),
            ("rules", &self.rules),
        ] {
            if value.as_ref().is_some_and(says_something) {
                return Err(ApiError::invalid(format_args!(
                    "`network.{name}` is not supported"
                )));
            }
        }
        let egress = Egress {
            internet: internet.or(self.internet),
            allow: ranges(self.allow_out.as_deref())?,
            deny: ranges(self.deny_out.as_deref())?,
            dns_servers: addresses(self.dns_servers.as_deref())?,
        };
        egress.validate()?;
        Ok(egress)
    }

    /// The partial network policy.
    pub(crate) fn asked(&self, internet: Option<bool>) -> Result<RequestedNetwork, ApiError> {
        let mask = self
            .mask_request_host
            .as_deref()
            .filter(|mask| !mask.is_empty());
        let egress = self.egress(internet)?;
        Ok(RequestedNetwork {
            said_open: egress.internet == Some(true),
            egress: egress.into(),
            allow_public_traffic: self.allow_public_traffic,
            mask_request_host: mask.map(str::parse).transpose()?,
        })
    }
}

/// Whether an unsupported value has an effect.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn ranges(list: Option<&[String]>) -> Result<Vec<AddressRange>, InvalidRule> {
    let list = list.unwrap_or_default();
    if list.len() > MAX_RULES {
        return Err(InvalidRule::TooMany(list.len()));
    }
    list.iter().map(|text| text.trim().parse()).collect()
}

fn addresses(list: Option<&[String]>) -> Result<Vec<std::net::Ipv4Addr>, InvalidRule> {
    let parse = |text: &String| text.parse().map_err(|_| InvalidRule::DnsServers);
    list.unwrap_or_default().iter().map(parse).collect()
}

/// `PUT /sandboxes/{id}/network`: replaces all outbound rules; omitted ones are cleared.
pub(super) async fn set(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    RequiredBody(body): RequiredBody<NetworkBody>,
) -> Result<StatusCode, ApiError> {
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    backend
        .sandboxes
        .set_network(&permit, body.egress(None)?)
        .await??;
    Ok(StatusCode::NO_CONTENT)
}
