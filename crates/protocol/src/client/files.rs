//! File contents and tunnels.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, UPGRADE};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::{ClientError, Duplex, EnvdClient, RequestBody, success};
use crate::TUNNEL_UPGRADE;
use crate::files::WrittenFile;
use crate::headers::METADATA_PREFIX;

/// Parameters of an upload.
#[derive(Debug, Clone, Default)]
pub struct Upload {
    path: String,
    metadata: BTreeMap<String, String>,
}

impl Upload {
    /// Target path in the sandbox; missing parents are created.
    #[must_use]
    pub fn to(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            metadata: BTreeMap::new(),
        }
    }

    /// Sets metadata of the file.
    #[must_use]
    pub fn with_metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// A file being downloaded.
pub struct Download {
    size: Option<u64>,
    body: Incoming,
}

impl From<Response<Incoming>> for Download {
    fn from(response: Response<Incoming>) -> Self {
        let size = response.headers().get(CONTENT_LENGTH);
        let size = size.and_then(|text| text.to_str().ok()?.parse().ok());
        Self {
            size,
            body: response.into_body(),
        }
    }
}

impl Download {
    /// The size, if known.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The next chunk. `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks before the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| ClientError::Interrupted(error.into()))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl EnvdClient {
    /// Writes `body` to a file. No time limit, because bodies may be large.
    ///
    /// # Errors
    /// If the daemon rejects it (disk full: 507) or the connection breaks.
    pub async fn upload(
        &self,
        upload: &Upload,
        body: RequestBody,
    ) -> Result<WrittenFile, ClientError> {
        let mut request = self.request_with(Method::POST, &self.files(&upload.path), body)?;
        let headers = request.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
        for (key, value) in &upload.metadata {
            let name = HeaderName::try_from(format!("{METADATA_PREFIX}{key}"));
            let value = HeaderValue::from_str(value);
            headers.insert(
                name.map_err(ClientError::malformed)?,
                value.map_err(ClientError::malformed)?,
            );
        }
        let response = success(self.transport.send_request(request).await?).await?;
        let body = super::read_whole(response.into_body()).await?;
        let entries: Vec<WrittenFile> =
            serde_json::from_slice(&body).map_err(ClientError::malformed)?;
        let first = entries.into_iter().next();
        first.ok_or_else(|| ClientError::malformed("an upload that wrote no file"))
    }

    /// Writes bytes to a file.
    ///
    /// # Errors
    /// Like [`upload`](Self::upload).
    pub async fn upload_bytes(
        &self,
        upload: &Upload,
        bytes: Bytes,
    ) -> Result<WrittenFile, ClientError> {
        let body = http_body_util::Full::new(bytes).map_err(|never| match never {});
        self.upload(upload, RequestBody::new(body)).await
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it does not exist or is not a file, or the daemon is unreachable.
    pub async fn download(&self, path: &str) -> Result<Download, ClientError> {
        let request = self.request(Method::GET, &self.files(path), Bytes::new())?;
        let response = success(self.transport.send_request(request).await?).await?;
        Ok(response.into())
    }

    /// Connects to a port inside the sandbox, including loopback ports.
    ///
    /// # Errors
    /// If the port has no listener (502) or the daemon is unreachable.
    pub async fn tunnel(&self, port: u16) -> Result<impl Duplex, ClientError> {
        let mut request = self.request(Method::GET, &format!("/tunnel/{port}"), Bytes::new())?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(TUNNEL_UPGRADE));
        let response = success(self.transport.send_request(request).await?).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(ClientError::malformed(
                "a tunnel that does not switch protocols",
            ));
        }
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(|error| ClientError::Interrupted(error.into()))?;
        Ok(TokioIo::new(upgraded))
    }

    fn files(&self, path: &str) -> String {
        let mut uri = format!("/files?path={}", encode(path));
        if let Some(user) = &self.user {
            uri.push_str("&username=");
            uri.push_str(&encode(user));
        }
        uri
    }
}

/// Percent-encodes all characters except unreserved ones.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_could_end_a_query_is_encoded() {
        assert_eq!(encode("/a b&c=d+é%"), "/a%20b%26c%3Dd%2B%C3%A9%25");
    }
}
