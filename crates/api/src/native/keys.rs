//! API keys.

use axum::extract::{Path, State};
use shoal_core::auth::{KeyRecord, Principal, TeamSlug};
use shoal_core::id::KeyId;
use shoal_core::ports::access;
use shoal_protocol::native::{Key, MintedKey, NewKey};

use super::admin::Admin;
use super::answer::Answer;
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;

fn view(record: &KeyRecord, principal: &Principal) -> Key {
    let mask = &record.mask;
    Key {
        id: record.id.to_string(),
        name: record.name.clone(),
        team: record.slug.to_string(),
        admin: record.admin,
        mask: format!(
            "{}{}…{}",
            mask.prefix, mask.masked_value_prefix, mask.masked_value_suffix
        ),
        created_at: record.created_at.to_string(),
        own: record.id == principal.key,
    }
}

/// `GET /keys`: the keys of all teams, oldest first.
pub(super) async fn list(
    State(backend): State<Backend>,
    Admin(principal): Admin,
) -> Result<Answer<Vec<Key>>, ApiError> {
    let mut keys = backend.keys.list(&principal).await?;
    keys.sort_by_key(|key| key.created_at);
    Ok(Answer::ok(
        keys.iter().map(|key| view(key, &principal)).collect(),
    ))
}

/// `POST /keys`: the only response that contains the key itself.
pub(super) async fn create(
    State(backend): State<Backend>,
    Admin(principal): Admin,
    body: JsonBody<NewKey>,
) -> Result<Answer<MintedKey>, ApiError> {
    let NewKey { name, team, admin } = body.value;
    let team: TeamSlug = match team {
        Some(team) => team.parse().map_err(ApiError::invalid)?,
        None => principal.slug.clone(),
    };
    let new = access::NewKey {
        team,
        name,
        admin,
        quota: None,
    };
    let (secret, record) = backend.keys.create(&principal, new).await?;
    audit::target(record.id);
    audit::target(&record.slug);
    Ok(Answer::created(MintedKey {
        key: view(&record, &principal),
        secret: secret.reveal().to_owned(),
    }))
}

/// `DELETE /keys/{id}`.
pub(super) async fn remove(
    State(backend): State<Backend>,
    Admin(principal): Admin,
    Path(id): Path<String>,
) -> Result<Answer<()>, ApiError> {
    // An invalid id cannot belong to a key.
    let id: KeyId = id
        .parse()
        .map_err(|_| ApiError::not_found(format!("API key {id:?} was not found")))?;
    backend.keys.delete(&principal, id).await?;
    Ok(Answer::ok(()))
}
