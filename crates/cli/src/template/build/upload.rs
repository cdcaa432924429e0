//! Uploading files to the server.

use std::fs::File;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use indicatif::ProgressBar;
use shoal_protocol::build::FileLink;
use tokio::io::AsyncReadExt;

use super::archive;
use super::context::Entries;
use crate::calls::encode;
use crate::connection::{Connection, Origin, open_elsewhere};
use crate::failure::{Failure, Kind};
use crate::progress;

/// How much is read at a time.
const CHUNK: usize = 256 << 10;

/// The timeout of an upload: as long as E2B's clients wait.
const UPLOAD_TIMEOUT: Duration = Duration::from_hours(1);

/// How much of an error response is read.
const REFUSAL_MAX: usize = 64 << 10;

/// Uploads the files of a hash, unless the server has them.
pub(super) async fn upload(
    server: &Connection,
    template: &str,
    hash: &str,
    entries: &Entries,
    what: &str,
) -> Result<(), Failure> {
    let path = format!("/templates/{}/files/{hash}", encode(template));
    let link: FileLink = server.call(Method::GET, &path, None).await?;
    if link.present {
        return Ok(());
    }
    let nowhere = || Failure::new(Kind::Server, "the server does not say where files go");
    let uri: Uri = link
        .url
        .as_deref()
        .and_then(|url| url.parse().ok())
        .ok_or_else(nowhere)?;
    let entries = entries.clone();
    let packed = tokio::task::spawn_blocking(move || archive::pack(&entries)).await;
    let packed = packed.map_err(|error| Failure::other(error.to_string()))?;
    let (file, length) =
        packed.map_err(|error| Failure::other(format!("cannot pack the files: {error}")))?;
    let bar = progress::transfer(&format!("uploading {what}"), Some(length));
    let sent = tokio::time::timeout(UPLOAD_TIMEOUT, put(&uri, &link, file, length, &bar)).await;
    bar.finish_and_clear();
    sent.unwrap_or_else(|_| {
        Err(Failure::new(
            Kind::Unreachable,
            "the upload took over an hour",
        ))
    })
}

async fn put(
    uri: &Uri,
    link: &FileLink,
    file: File,
    length: u64,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let nowhere = || Failure::new(Kind::Server, format!("{uri} is nowhere to send files to"));
    let origin = Origin::of(uri).ok_or_else(nowhere)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // No API key: the URL is the permission, and may lead to another server.
    let mut request = Request::builder()
        .method(Method::PUT)
        .uri(path)
        .header(HOST, origin.authority())
        .header(CONTENT_LENGTH, length);
    let headers = link.headers.iter().flatten();
    let headers: Vec<_> = headers
        .filter(|(name, _)| !name.eq_ignore_ascii_case("content-length"))
        .collect();
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
    {
        request = request.header(CONTENT_TYPE, "application/octet-stream");
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let seen = bar.clone();
    let chunks = stream::try_unfold(tokio::fs::File::from_std(file), move |mut file| {
        let seen = seen.clone();
        async move {
            let mut chunk = Vec::with_capacity(CHUNK);
            let read = (&mut file)
                .take(CHUNK as u64)
                .read_to_end(&mut chunk)
                .await?;
            seen.inc(read as u64);
            Ok::<_, io::Error>((read > 0).then(|| (Frame::data(Bytes::from(chunk)), file)))
        }
    });
    let request = request
        .body(StreamBody::new(Box::pin(chunks)))
        .map_err(|error| Failure::other(format!("cannot send the files: {error}")))?;
    let io = TokioIo::new(open_elsewhere(&origin).await?);
    let exchange = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    };
    let response = exchange.await.map_err(|error| {
        Failure::new(
            Kind::Unreachable,
            format!("the upload to {origin} broke: {error}"),
        )
    })?;
    if response.status().is_success() {
        return Ok(());
    }
    Err(refused(response).await)
}

async fn refused(response: Response<Incoming>) -> Failure {
    let status = response.status();
    let body = Limited::new(response.into_body(), REFUSAL_MAX)
        .collect()
        .await;
    let bytes = body.map(|body| body.to_bytes()).unwrap_or_default();
    let said: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let said = said.and_then(|body| Some(body.get("message")?.as_str()?.to_owned()));
    let said = said.unwrap_or_else(|| format!("the server answered {status}"));
    Failure::of_status(status, format!("the files were not taken: {said}"))
}
