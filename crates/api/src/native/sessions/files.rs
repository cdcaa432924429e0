//! The files of sessions.

use axum::Extension;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::Response;
use axum::routing;
use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::ports::sessions::files::{
    FILE_MAX, FileError, OnlyIf, SessionFile, SyncView, WriteFile,
};
use shoal_core::session::files::SyncState;
use shoal_core::session::path::SessionPath;
use shoal_protocol::native as wire;

use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::native::answer::Answer;
use crate::query::Query;
use crate::routes::Routes;

/// The routes with requests of an ordinary size.
pub(super) fn add_routes(routes: Routes) -> Routes {
    routes
        .route("/sessions/{id}/files", routing::get(list).delete(remove))
        .route("/sessions/{id}/files/move", routing::post(rename))
        .route("/sessions/{id}/sync", routing::get(sync))
}

/// The routes with large, slow requests.
pub(super) fn add_uploads(routes: Routes) -> Routes {
    let limit = DefaultBodyLimit::max(usize::try_from(FILE_MAX).unwrap_or(usize::MAX));
    routes.route(
        "/sessions/{id}/files/content",
        routing::get(read).put(write).layer(limit),
    )
}

/// Which files are listed or watched.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SessionFilesQuery {
    /// A file, or a directory with everything in it; everything if absent.
    path: Option<String>,
}

impl SessionFilesQuery {
    /// The path; none for everything.
    pub(super) fn below(self) -> Result<Option<SessionPath>, ApiError> {
        let path = self.path.filter(|path| !path.is_empty());
        path.as_deref().map(parse).transpose()
    }
}

/// Which files are read or removed.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SessionPathQuery {
    /// Where they are, below the home directory of the machine.
    path: String,
}

/// A file to write.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SessionFileQuery {
    /// Where the file is, below the home directory of the machine.
    path: String,
    /// Whether its owner may execute it; as before if absent.
    executable: Option<bool>,
}

fn parse(path: &str) -> Result<SessionPath, ApiError> {
    path.parse::<SessionPath>()
        .map_err(|error| FileError::from(error).into())
}

fn view(file: SessionFile) -> wire::SessionFile {
    let SessionFile { path, file } = file;
    wire::SessionFile {
        path: path.into(),
        size: file.state.size,
        sha256: file.state.digest.to_string(),
        executable: file.state.executable,
        modified_at: file.modified_at.to_string(),
        conflict_of: file.conflict_of.map(String::from),
    }
}

/// `GET /sessions/{id}/files`.
async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<SessionFilesQuery>,
) -> Result<Answer<Vec<wire::SessionFile>>, ApiError> {
    let below = query.below()?;
    let files = backend.session_files.list(&principal, &id, below.as_ref());
    Ok(Answer::ok(files.await?.into_iter().map(view).collect()))
}

/// `GET /sessions/{id}/files/content`.
async fn read(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<SessionPathQuery>,
) -> Result<Response, ApiError> {
    let path = parse(&query.path)?;
    let (file, contents) = backend.session_files.read(&principal, &id, &path).await?;
    let size = contents.len();
    let mut response = Response::new(Body::from(contents));
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static;
    headers.insert(CONTENT_TYPE, plain("application/octet-stream"));
    // A browser must not render a session's file as a page of this origin.
    headers.insert(X_CONTENT_TYPE_OPTIONS, plain("nosniff"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    let tag = format!("\"{}\"", file.file.state.digest);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

/// The condition of a request.
fn condition(headers: &HeaderMap) -> Result<OnlyIf, ApiError> {
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    if let Some(absent) = headers.get(IF_NONE_MATCH).map(text) {
        return match absent.as_str() {
            "*" => Ok(OnlyIf::Absent),
            _ => Err(ApiError::invalid("`If-None-Match`: give `*`")),
        };
    }
    let Some(tag) = headers.get(IF_MATCH).map(text) else {
        return Ok(OnlyIf::Always);
    };
    let invalid = |_| ApiError::invalid("`If-Match`: give the `ETag` of the file");
    tag.trim_matches('"')
        .parse()
        .map(OnlyIf::Has)
        .map_err(invalid)
}

/// `PUT /sessions/{id}/files/content`.
async fn write(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<SessionFileQuery>,
    headers: HeaderMap,
    contents: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Result<Answer<wire::SessionFile>, ApiError> {
    let path = parse(&query.path)?;
    let only_if = condition(&headers)?;
    let contents = contents.map_err(|refused| match refused.status() {
        StatusCode::PAYLOAD_TOO_LARGE => FileError::TooLarge.into(),
        _ => ApiError::invalid(refused.body_text()),
    })?;
    let file = WriteFile {
        path,
        contents,
        executable: query.executable,
        only_if,
    };
    let written = backend.session_files.write(&principal, &id, file).await?;
    Ok(Answer::ok(view(written)))
}

/// `DELETE /sessions/{id}/files`.
async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<SessionPathQuery>,
) -> Result<Answer<wire::SessionFileCount>, ApiError> {
    let path = parse(&query.path)?;
    let files = backend.session_files.remove(&principal, &id, &path).await?;
    Ok(Answer::ok(wire::SessionFileCount { files }))
}

/// `POST /sessions/{id}/files/move`.
async fn rename(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<wire::MoveSessionFile>,
) -> Result<Answer<wire::SessionFileCount>, ApiError> {
    let (from, to) = (parse(&body.value.from)?, parse(&body.value.to)?);
    let moved = backend.session_files.rename(&principal, &id, &from, &to);
    let files = moved.await?;
    Ok(Answer::ok(wire::SessionFileCount { files }))
}

/// `GET /sessions/{id}/sync`.
async fn sync(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<wire::SessionSync>, ApiError> {
    let SyncView {
        state,
        behind,
        connected,
        conflicts,
        notes,
    } = backend.session_files.sync(&principal, &id).await?;
    Ok(Answer::ok(wire::SessionSync {
        state: state_name(state).to_owned(),
        behind,
        connected,
        conflicts: conflicts.into_iter().map(String::from).collect(),
        notes,
    }))
}

/// How the two sides stand, as clients see it.
pub(super) fn state_name(state: SyncState) -> &'static str {
    match state {
        SyncState::Synced => "synced",
        SyncState::Behind => "behind",
        SyncState::Conflict => "conflict",
    }
}
