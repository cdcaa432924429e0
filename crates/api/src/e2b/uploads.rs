//! Files that a build copies: where they go, and how they get there.
//!
//! Clients put an archive to an address that they were given, without a key (as E2B's do to its
//! store): the address carries the right to write that one archive, for a while.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::routing::put;
use axum::{Extension, Json, Router};
use futures_util::StreamExt;
use http::header::CONTENT_LENGTH;
use http::uri::Scheme;
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::build::FilesHash;
use shoal_core::id::TeamId;
use shoal_engine::{Engine, IncomingUpload, UploadError};
use shoal_protocol::build::FileLink;
use shoal_protocol::signature::parse_expiration;
use tokio::io::AsyncWriteExt;

use super::builds::template_id;
use crate::error::ApiError;
use crate::host::host_of;
use crate::query::Query;

/// How long an address is good for (as E2B's).
const GOOD_FOR: Duration = Duration::from_secs(30 * 60);

/// How long nothing may come before an upload is given up.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The routes that take no key. They are behind no bound on the size and the time of a call but
/// their own.
pub(crate) fn routes() -> Router<Engine> {
    Router::new().route("/uploads/{team}/{hash}", put(receive))
}

/// `GET /templates/{id}/files/{hash}`: whether files are there, and where they are to go.
pub(super) async fn link(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
    scheme: Option<Extension<Scheme>>,
    headers: HeaderMap,
    uri: Uri,
    Path((template, hash)): Path<(String, String)>,
) -> Result<(StatusCode, Json<FileLink>), ApiError> {
    template_id(&engine, &principal, &template)?;
    let hash: FilesHash = hash.parse().map_err(ApiError::invalid)?;
    let expires = engine.now() + GOOD_FOR;
    let seconds = expires.unix_millis() / 1000;
    let signature = engine.upload_signature(principal.team, &hash, seconds);
    let scheme = scheme.map_or(Scheme::HTTP, |Extension(scheme)| scheme);
    let host =
        host_of(&headers, &uri).ok_or_else(|| ApiError::invalid("the request names no `Host`"))?;
    let team = principal.team;
    let url =
        format!("{scheme}://{host}/uploads/{team}/{hash}?expires={seconds}&signature={signature}");
    let link = FileLink {
        present: engine.has_upload(principal.team, &hash),
        url: Some(url),
        headers: None,
    };
    Ok((StatusCode::CREATED, Json(link)))
}

#[derive(Debug, Deserialize)]
struct Signed {
    expires: Option<String>,
    signature: Option<String>,
}

/// `PUT /uploads/{team}/{hash}`: takes an archive.
async fn receive(
    State(engine): State<Engine>,
    Path((team, hash)): Path<(String, String)>,
    Query(signed): Query<Signed>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let (team, hash) = meant(&engine, &team, &hash, signed)?;
    let announced = request.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    let most = engine.upload_max();
    if announced.is_some_and(|bytes| bytes > most) {
        return Err(refusal(UploadError::TooLarge(most)));
    }
    let mut incoming = engine.begin_upload(team, &hash).await.map_err(failed)?;
    fill(&mut incoming, request).await?;
    let kept = tokio::task::spawn_blocking(move || incoming.keep()).await;
    let kept = kept.map_err(|e| failed(std::io::Error::other(e)))?;
    kept.map_err(refusal)?;
    Ok(StatusCode::OK)
}

/// The archive that an address gives the right to write.
fn meant(
    engine: &Engine,
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
    if !engine.upload_is_signed(team, &hash, expires, &signature) {
        return Err(refused("its signature is another's"));
    }
    if engine.now().unix_millis() / 1000 > expires {
        return Err(refused("it was good until a while ago: ask for another"));
    }
    Ok((team, hash))
}

/// Writes what comes, as far as there is room for it.
async fn fill(incoming: &mut IncomingUpload, request: Request) -> Result<(), ApiError> {
    let gone = || failed(std::io::ErrorKind::NotFound.into());
    let path = incoming.path().ok_or_else(gone)?;
    let mut target = tokio::fs::File::create(path).await.map_err(failed)?;
    let mut body = request.into_body().into_data_stream();
    loop {
        let next = tokio::time::timeout(SILENCE_MAX, body.next()).await;
        let next = next.map_err(|_| {
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "the archive stopped coming")
        })?;
        let Some(piece) = next else { break };
        let piece =
            piece.map_err(|e| ApiError::invalid(format_args!("the archive broke off: {e}")))?;
        let room = incoming.coming(piece.len() as u64).await;
        room.map_err(refusal)?;
        target.write_all(&piece).await.map_err(failed)?;
    }
    target.flush().await.map_err(failed)
}

fn refusal(error: UploadError) -> ApiError {
    let status = match error {
        UploadError::Full(_) | UploadError::AllFull(_) => StatusCode::INSUFFICIENT_STORAGE,
        UploadError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
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
