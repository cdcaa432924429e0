//! Images on the server's node.

use std::path::PathBuf;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use shoal_core::image::{Image as Stored, ImageName, RegistryAuth};
use shoal_protocol::native::{Image, ImportImage, PullImage};

use super::admin::Admin;
use super::answer::Answer;
use super::progress::stream;
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::query::Query;

pub(super) fn view(image: &Stored) -> Image {
    Image {
        name: image.name.to_string(),
        digest: image.digest.clone(),
        layers: image.layers.len(),
        size_bytes: image.size_bytes,
        user: image.user.clone(),
        workdir: image.workdir.clone(),
        created_at: image.created_at.to_string(),
    }
}

/// `GET /images`: all images, by name.
pub(super) async fn list(
    State(backend): State<Backend>,
    Admin(_): Admin,
) -> Result<Answer<Vec<Image>>, ApiError> {
    let mut images = backend.images.list().await?;
    images.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Answer::ok(images.iter().map(view).collect()))
}

/// `POST /images/pull`, with progress. A client that disconnects cancels the pull, unless other
/// clients wait for the same image.
pub(super) async fn pull(
    State(backend): State<Backend>,
    Admin(_): Admin,
    body: JsonBody<PullImage>,
) -> Result<Response, ApiError> {
    let PullImage {
        name,
        username,
        password,
    } = body.value;
    let name = image_name(&name)?;
    audit::target(&name);
    let auth = match (username, password) {
        (username, Some(password)) => Some(RegistryAuth {
            username: username.unwrap_or_default(),
            password,
            aws_region: None,
        }),
        (Some(_), None) => {
            return Err(ApiError::invalid("`username`: needs a `password`"));
        }
        (None, None) => None,
    };
    Ok(stream(async move |sink| {
        backend.images.pull(name, auth, sink).await
    }))
}

/// `POST /images/import`, with progress.
pub(super) async fn import(
    State(backend): State<Backend>,
    Admin(_): Admin,
    body: JsonBody<ImportImage>,
) -> Result<Response, ApiError> {
    let name = image_name(&body.value.name)?;
    audit::target(&name);
    let path = PathBuf::from(body.value.path);
    if !path.is_absolute() {
        return Err(ApiError::invalid(
            "`path`: must be absolute, on the server's machine",
        ));
    }
    Ok(stream(async move |sink| {
        backend.images.import(path, name, sink).await
    }))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RemoveQuery {
    /// Image name. Required.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
}

/// `DELETE /images?name=…`: names contain slashes, so they are not in the path.
pub(super) async fn remove(
    State(backend): State<Backend>,
    Admin(_): Admin,
    Query(query): Query<RemoveQuery>,
) -> Result<Answer<()>, ApiError> {
    let name = query
        .name
        .ok_or_else(|| ApiError::invalid("`name`: is missing"))?;
    let name = image_name(&name)?;
    audit::target(&name);
    backend.images.remove(&name).await?;
    Ok(Answer::ok(()))
}

pub(super) fn image_name(text: &str) -> Result<ImageName, ApiError> {
    text.parse().map_err(ApiError::invalid)
}
