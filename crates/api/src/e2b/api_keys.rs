//! API keys of the caller's team, for admins.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use shoal_core::auth::{KeyMask, KeyRecord, Principal};
use shoal_core::id::KeyId;
use shoal_core::ports::access::NewKey;
use shoal_core::quota::Quota;

use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;

/// A key without its secret.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct TeamApiKey {
    id: String,
    name: String,
    #[cfg_attr(
        test,
        schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")
    )]
    mask: KeyMask,
    created_at: String,
    created_by: Option<()>,
    last_used: Option<()>,
    /// OpenKruise's quota of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        test,
        schemars(with = "Option<std::collections::BTreeMap<String, serde_json::Value>>")
    )]
    quota: Option<Quota>,
}

/// A key that was just made: the one answer with the key itself.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct CreatedTeamApiKey {
    key: String,
    #[serde(flatten)]
    shown: TeamApiKey,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NamedKey {
    name: String,
}

/// A key to make, with OpenKruise's additions to E2B's name.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct NewTeamApiKey {
    name: String,
    /// Another team than the caller's.
    team_name: Option<String>,
    /// The limits of the key's sandboxes together.
    #[cfg_attr(
        test,
        schemars(with = "Option<std::collections::BTreeMap<String, serde_json::Value>>")
    )]
    quota: Option<Quota>,
}

impl From<KeyRecord> for TeamApiKey {
    fn from(record: KeyRecord) -> Self {
        Self {
            id: record.id.to_string(),
            name: record.name,
            mask: record.mask,
            created_at: record.created_at.to_string(),
            created_by: None,
            last_used: None,
            quota: record.quota,
        }
    }
}

fn admin(principal: &Principal) -> Result<(), ApiError> {
    let forbidden = || ApiError::new(StatusCode::FORBIDDEN, "only an admin key may do this");
    principal.admin.then_some(()).ok_or_else(forbidden)
}

/// A key of the caller's team. An admin manages those of other teams under `/api/v1/keys`.
async fn own(backend: &Backend, principal: &Principal, id: &str) -> Result<KeyId, ApiError> {
    let missing = || ApiError::not_found(format!("API key {id:?} was not found"));
    // An invalid id cannot belong to a key.
    let id: KeyId = id.parse().map_err(|_| missing())?;
    let keys = backend.keys.list(principal).await?;
    let found = keys
        .iter()
        .any(|key| key.id == id && key.team == principal.team);
    found.then_some(id).ok_or_else(missing)
}

/// `GET /api-keys`: the keys of the caller's team, oldest first.
pub(super) async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
) -> Result<Json<Vec<TeamApiKey>>, ApiError> {
    admin(&principal)?;
    let mut keys = backend.keys.list(&principal).await?;
    keys.retain(|key| key.team == principal.team);
    keys.sort_by_key(|key| key.created_at);
    Ok(Json(keys.into_iter().map(TeamApiKey::from).collect()))
}

/// `POST /api-keys`: creates a key without admin rights.
pub(super) async fn create(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<NewTeamApiKey>,
) -> Result<(StatusCode, Json<CreatedTeamApiKey>), ApiError> {
    admin(&principal)?;
    let NewTeamApiKey {
        name,
        team_name,
        quota,
    } = body.value;
    let team = match team_name {
        Some(team) => team.parse().map_err(ApiError::invalid)?,
        None => principal.slug.clone(),
    };
    let new = NewKey {
        team,
        name,
        admin: false,
        quota,
    };
    let (secret, record) = backend.keys.create(&principal, new).await?;
    audit::target(record.id);
    let created = CreatedTeamApiKey {
        key: secret.reveal().to_owned(),
        shown: record.into(),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// `PATCH /api-keys/{id}`: renames a key. Responds without a body, as E2B's server does.
pub(super) async fn rename(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<NamedKey>,
) -> Result<StatusCode, ApiError> {
    admin(&principal)?;
    let id = own(&backend, &principal, &id).await?;
    backend
        .keys
        .rename(&principal, id, &body.value.name)
        .await?;
    Ok(StatusCode::ACCEPTED)
}

/// `DELETE /api-keys/{id}`.
pub(super) async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    admin(&principal)?;
    let id = own(&backend, &principal, &id).await?;
    backend.keys.delete(&principal, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
