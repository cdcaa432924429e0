//! Files in sandboxes. envd resolves paths and checks permissions: it acts as the sandbox's user.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::multipart::{Field, MultipartRejection};
use axum::extract::{Multipart, Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::header::{
    CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::ports::inside::{DirEntry, FileKind, SandboxClient};
use shoal_protocol::native::FileEntry;
use tokio::sync::mpsc;

use super::answer::Answer;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::query::Query;

/// The largest uploaded file, in bytes.
const FILE_MAX: u64 = 100 << 20;

/// The largest request body of an upload, with some room for the form around the file.
pub(super) const UPLOAD_MAX: usize = (100 << 20) + (64 << 10);

/// How many chunks of an upload wait for the sandbox.
const WAITING: usize = 4;

/// The form field with the file.
const PART: &str = "file";

/// The default directory of a list.
const ROOT: &str = "/";

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FileQuery {
    /// Path in the sandbox. Required, except to list a directory: `/` then.
    path: Option<String>,
    /// User of the sandbox; the template's if absent.
    user: Option<String>,
}

impl FileQuery {
    fn path(&self) -> Result<String, ApiError> {
        let path = self.path.clone().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| ApiError::invalid("`path`: is missing"))?;
        if path.contains('\0') {
            return Err(ApiError::invalid("`path`: without NUL"));
        }
        Ok(path)
    }

    /// A client of the sandbox, as the user in the query.
    async fn inside(
        &self,
        backend: &Backend,
        principal: &Principal,
        id: &str,
    ) -> Result<Arc<dyn SandboxClient>, ApiError> {
        let (permit, _) = backend.sandboxes.find(principal, id).await?;
        let user = self.user.as_deref().filter(|user| !user.is_empty());
        Ok(backend.access.open(&permit, user).await?)
    }
}

/// `GET /sandbox/files/{id}`: the entries of a directory, by name.
pub(super) async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(mut query): Query<FileQuery>,
) -> Result<Answer<Vec<FileEntry>>, ApiError> {
    let inside = query.inside(&backend, &principal, &id).await?;
    query.path.get_or_insert_with(|| ROOT.to_owned());
    let mut entries = inside.list_dir(query.path()?).await?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Answer::ok(entries.into_iter().map(view).collect()))
}

fn view(entry: DirEntry) -> FileEntry {
    FileEntry {
        is_dir: entry.kind == FileKind::Directory,
        name: entry.name,
        path: entry.path,
        size: entry.size,
    }
}

/// `GET /sandbox/files/{id}/download`: a file's bytes.
pub(super) async fn download(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<FileQuery>,
) -> Result<Response, ApiError> {
    let inside = query.inside(&backend, &principal, &id).await?;
    let path = query.path()?;
    let file = inside.read_file(path.clone()).await?;
    let mut response = Response::new(Body::from_stream(file.contents));
    let headers = response.headers_mut();
    let plain = |name: HeaderName, value| (name, HeaderValue::from_static(value));
    headers.extend([
        plain(CONTENT_TYPE, "application/octet-stream"),
        // A browser must not render a sandbox's file as a page of this origin.
        plain(X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ]);
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let disposition = format!("attachment; filename*=UTF-8''{name}");
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    if let Some(size) = file.size {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    }
    Ok(response)
}

/// `DELETE /sandbox/files/{id}`: a regular file, or a link to one.
pub(super) async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<FileQuery>,
) -> Result<Answer<()>, ApiError> {
    let inside = query.inside(&backend, &principal, &id).await?;
    let path = query.path()?;
    if inside.stat(path.clone()).await?.kind != FileKind::File {
        return Err(ApiError::invalid(
            "`path`: is no regular file, and only those are removed here",
        ));
    }
    inside.remove(path).await?;
    Ok(Answer::ok(()))
}

/// `POST /sandbox/files/{id}/upload`: the form field `file`, forwarded as it arrives.
pub(super) async fn upload(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<FileQuery>,
    form: Result<Multipart, MultipartRejection>,
) -> Result<Answer<FileEntry>, ApiError> {
    let inside = query.inside(&backend, &principal, &id).await?;
    let path = query.path()?;
    let mut form = form.map_err(|refused| ApiError::new(refused.status(), refused.body_text()))?;
    loop {
        let part = form.next_field().await;
        let part = part.map_err(|e| ApiError::new(e.status(), e.body_text()))?;
        match part {
            Some(part) if part.name() == Some(PART) => {
                write(inside.as_ref(), path.clone(), part).await?;
                let entry = inside.stat(path).await?;
                return Ok(Answer::created(view(entry)));
            }
            Some(_) => {}
            None => {
                return Err(ApiError::invalid(format_args!(
                    "the form has no part `{PART}`"
                )));
            }
        }
    }
}

/// Forwards the form field. If it breaks off, the sandbox learns of that, so that it does not keep a
/// partial file as a complete one.
async fn write(
    inside: &dyn SandboxClient,
    path: String,
    mut part: Field<'_>,
) -> Result<(), ApiError> {
    let (sender, pieces) = mpsc::channel::<io::Result<Bytes>>(WAITING);
    let pieces = stream::unfold(pieces, async |mut pieces| {
        Some((pieces.recv().await?, pieces))
    });
    let pump = async move {
        let mut bytes: u64 = 0;
        loop {
            let broken = match part.chunk().await {
                Ok(None) => return Ok(()),
                Ok(Some(piece)) => {
                    bytes += piece.len() as u64;
                    if bytes <= FILE_MAX {
                        if sender.send(Ok(piece)).await.is_err() {
                            // The sandbox stopped reading, and returns the reason.
                            return Ok(());
                        }
                        continue;
                    }
                    too_large()
                }
                Err(error) => ApiError::new(error.status(), error.body_text()),
            };
            let told = io::Error::other("the upload broke off");
            let _ = sender.send(Err(told)).await;
            return Err(broken);
        }
    };
    let (pumped, written) = tokio::join!(pump, inside.write_file(path, pieces.boxed()));
    // An error of the request is the cause of the sandbox's.
    pumped?;
    Ok(written?)
}

fn too_large() -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!(
            "a file of more than {} MiB: upload it through the daemon",
            FILE_MAX >> 20
        ),
    )
}
