//! Uploads of files that a build copies.
//!
//! Clients put an archive to a signed URL without a key, as E2B's clients do to its object store.
//! The URL contains the right to write that one archive for a limited time.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::routing::put;
use axum::{Extension, Json};
use futures_util::StreamExt;
use http::header::CONTENT_LENGTH;
use http::uri::Scheme;
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::build::FilesHash;
use shoal_core::id::TeamId;
use shoal_core::ports::builds::{Upload, UploadError};
use shoal_protocol::build::FileLink;
use shoal_protocol::signature::parse_expiration;

use super::builds::template_id;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::host::host_of;
use crate::query::Query;
use crate::routes::Routes;

/// The lifetime of a URL (as E2B's).
const GOOD_FOR: Duration = Duration::from_secs(30 * 60);

/// How long an upload may be idle before it is aborted.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The routes without a key. They have their own bounds on size and time instead of those of other
/// calls.
pub(crate) fn routes() -> Routes {
    Routes::new().route("/uploads/{team}/{hash}", put(receive))
}

/// `GET /templates/{id}/files/{hash}`: whether the files exist, and the URL to upload them.
pub(super) async fn link(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    scheme: Option<Extension<Scheme>>,
    headers: HeaderMap,
    uri: Uri,
    Path((template, hash)): Path<(String, String)>,
) -> Result<(StatusCode, Json<FileLink>), ApiError> {
    template_id(&backend, &principal, &template)?;
    let hash: FilesHash = hash.parse().map_err(ApiError::invalid)?;
    let expires = backend.clock.now() + GOOD_FOR;
    let seconds = expires.unix_millis() / 1000;
    let signature = backend.uploads.sign(principal.team, &hash, seconds);
    let scheme = scheme.map_or(Scheme::HTTP, |Extension(scheme)| scheme);
    let host =
        host_of(&headers, &uri).ok_or_else(|| ApiError::invalid("the request names no `Host`"))?;
    let team = principal.team;
    let url =
        format!("{scheme}://{host}/uploads/{team}/{hash}?expires={seconds}&signature={signature}");
    let link = FileLink {
        present: backend.uploads.has(principal.team, &hash).await,
        url: Some(url),
        headers: None,
    };
    Ok((StatusCode::CREATED, Json(link)))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Signed {
    /// End of the validity, in Unix seconds. Required.
    #[cfg_attr(test, schemars(required))]
    expires: Option<String>,
    /// Signature of the address. Required.
    #[cfg_attr(test, schemars(required))]
    signature: Option<String>,
}

/// `PUT /uploads/{team}/{hash}`: receives an archive.
async fn receive(
    State(backend): State<Backend>,
    Path((team, hash)): Path<(String, String)>,
    Query(signed): Query<Signed>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let (team, hash) = meant(&backend, &team, &hash, signed)?;
    let announced = request.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    let most = backend.uploads.max_bytes();
    if announced.is_some_and(|bytes| bytes > most) {
        return Err(refusal(UploadError::TooLarge(most)));
    }
    let upload = backend.uploads.begin(team, &hash).await;
    let mut upload = upload.map_err(refusal)?;
    fill(upload.as_mut(), request).await?;
    upload.finish().await.map_err(refusal)?;
    Ok(StatusCode::OK)
}

/// The archive that a signed URL may write.
fn meant(
    backend: &Backend,
    team: &str,
    hash: &str,
    signed: Signed,
) -> Result<(TeamId, FilesHash), ApiError> {
    let refused = |why: &str| {
        ApiError::new(
            StatusCode::FORBIDDEN,
            format!("the address is not good: {why}"),
        )
    };
    let team: TeamId = team.parse().map_err(|_| refused("it names no team"))?;
    let hash: FilesHash = hash.parse().map_err(|_| refused("it names no files"))?;
    let (Some(expires), Some(signature)) = (signed.expires, signed.signature) else {
        return Err(refused("it is not signed"));
    };
    let expires = parse_expiration(&expires).ok_or_else(|| refused("its end is no time"))?;
    if !backend.uploads.is_signed(team, &hash, expires, &signature) {
        return Err(refused("its signature is another's"));
    }
    if backend.clock.now().unix_millis() / 1000 > expires {
        return Err(refused("it was good until a while ago: ask for another"));
    }
    Ok((team, hash))
}

/// Writes the body, as far as quotas allow.
async fn fill(upload: &mut dyn Upload, request: Request) -> Result<(), ApiError> {
    let mut body = request.into_body().into_data_stream();
    loop {
        let next = tokio::time::timeout(SILENCE_MAX, body.next()).await;
        let next = next.map_err(|_| {
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "the archive stopped coming")
        })?;
        let Some(piece) = next else {
            return Ok(());
        };
        let piece =
            piece.map_err(|e| ApiError::invalid(format_args!("the archive broke off: {e}")))?;
        upload.write(piece).await.map_err(refusal)?;
    }
}

fn refusal(error: UploadError) -> ApiError {
    let status = match error {
        UploadError::Full(_) | UploadError::AllFull(_) => StatusCode::INSUFFICIENT_STORAGE,
        UploadError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        UploadError::NotServed(_) => StatusCode::NOT_IMPLEMENTED,
        UploadError::Io(error) => return failed(error),
    };
    ApiError::new(status, error.to_string())
}

fn failed(error: std::io::Error) -> ApiError {
    match error.kind() {
        std::io::ErrorKind::StorageFull => ApiError::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "no space left for the archive",
        ),
        _ => ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the archive cannot be written: the server's log says why",
        )
        .caused_by(&error),
    }
}
