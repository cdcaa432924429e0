//! Calls of the server's API.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shoal_protocol::native::{Envelope, PREFIX};

use crate::connection::Connection;
use crate::failure::{Failure, Kind};

/// The most bytes of an answer that is read whole.
const ANSWER_MAX: usize = 64 << 20;

/// How long a call may take; the server's own limit is shorter.
const CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// The characters that a part of a path or a query has unescaped.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Encodes what stands in a path or a query.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

impl Connection {
    /// Calls and reads the answer, which is JSON.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Failure> {
        let (_, bytes) = self.bytes(method, path, body).await?;
        read(&bytes)
    }

    /// The same, with headers of the call's own.
    pub(crate) async fn call_with<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, String)],
    ) -> Result<T, Failure> {
        let response = self.send(method, path, body, headers).await?;
        let collected = Limited::new(response.into_body(), ANSWER_MAX)
            .collect()
            .await;
        let collected = collected.map_err(|error| self.broken(&*error))?;
        read(&collected.to_bytes())
    }

    /// Calls and expects no answer but success.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Result<(), Failure> {
        self.bytes(Method::POST, path, Some(body)).await?;
        Ok(())
    }

    /// The same with another method.
    pub(crate) async fn nothing(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> Result<(), Failure> {
        self.bytes(method, path, Some(body)).await?;
        Ok(())
    }

    /// Calls and reads the answer with its headers.
    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(HeaderMap, T), Failure> {
        let (headers, bytes) = self.bytes(Method::GET, path, None).await?;
        Ok((headers, read(&bytes)?))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::GET, path, None).await
    }

    /// Calls and expects no answer but success.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.bytes(Method::DELETE, path, None).await?;
        Ok(())
    }

    /// Calls Shoal's own API.
    pub(crate) async fn native<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failure> {
        let body = body.map(serde_json::to_value).transpose();
        let body = body.map_err(|error| Failure::other(error.to_string()))?;
        let path = format!("{PREFIX}{path}");
        let envelope: Envelope<T> = self.call(method, &path, body).await?;
        envelope
            .data
            .ok_or_else(|| Failure::new(Kind::Server, "the server's answer is empty"))
    }

    /// Reads with Shoal's own API.
    pub(crate) async fn native_get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.native(Method::GET, path, None::<&()>).await
    }

    /// Removes with Shoal's own API.
    pub(crate) async fn native_delete(&self, path: &str) -> Result<(), Failure> {
        self.delete(&format!("{PREFIX}{path}")).await
    }

    /// Calls Shoal's own API and expects no answer but success.
    pub(crate) async fn native_post(&self, path: &str) -> Result<(), Failure> {
        let path = format!("{PREFIX}{path}");
        self.bytes(Method::POST, &path, None).await?;
        Ok(())
    }

    /// Writes bytes with Shoal's own API.
    pub(crate) async fn native_put_bytes(&self, path: &str, bytes: Bytes) -> Result<(), Failure> {
        let path = format!("{PREFIX}{path}");
        let body = (bytes, "application/octet-stream");
        self.send_bytes(Method::PUT, &path, body, &[]).await?;
        Ok(())
    }

    /// Reads bytes with Shoal's own API.
    pub(crate) async fn native_get_bytes(&self, path: &str) -> Result<Bytes, Failure> {
        let (_, bytes) = self
            .bytes(Method::GET, &format!("{PREFIX}{path}"), None)
            .await?;
        Ok(bytes)
    }

    /// Calls Shoal's own API and hands over each line of the answer as it comes.
    pub(crate) async fn native_lines<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        mut each: impl FnMut(T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let body = serde_json::to_value(body).map_err(|error| Failure::other(error.to_string()))?;
        let path = format!("{PREFIX}{path}");
        let mut body = self
            .send(Method::POST, &path, Some(body), &[])
            .await?
            .into_body();
        let mut waiting: Vec<u8> = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.broken(&error))?;
            waiting.extend_from_slice(frame.data_ref().map_or(&[][..], Bytes::as_ref));
            while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = waiting.drain(..=end).collect();
                each(read(&line)?)?;
            }
        }
        Ok(())
    }

    /// Reads server-sent events of Shoal's own API, and hands over the name and the data of each.
    pub(crate) async fn native_events(
        &self,
        path: &str,
        mut each: impl FnMut(&str, &str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let path = format!("{PREFIX}{path}");
        let response = self.send(Method::GET, &path, None, &[]).await?;
        let mut body = response.into_body();
        let mut waiting: Vec<u8> = Vec::new();
        let mut event = (String::new(), String::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.broken(&error))?;
            waiting.extend_from_slice(frame.data_ref().map_or(&[][..], Bytes::as_ref));
            while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = waiting.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line[..end]);
                match line.split_once(": ") {
                    Some(("event", name)) => name.clone_into(&mut event.0),
                    Some(("data", data)) => data.clone_into(&mut event.1),
                    None if line.is_empty() && !event.0.is_empty() => {
                        let (name, data) = std::mem::take(&mut event);
                        each(&name, &data)?;
                    }
                    // An id, or a comment.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(HeaderMap, Bytes), Failure> {
        let response = self.send(method, path, body, &[]).await?;
        let (parts, body) = response.into_parts();
        let collected = Limited::new(body, ANSWER_MAX).collect().await;
        let collected = collected.map_err(|error| self.broken(&*error))?;
        Ok((parts.headers, collected.to_bytes()))
    }

    /// Sends a request, and turns an answer that is no success into a failure.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, String)],
    ) -> Result<Response<Incoming>, Failure> {
        let bytes = body.map(|body| Bytes::from(body.to_string()));
        let json = (bytes.unwrap_or_default(), "application/json");
        self.send_bytes(method, path, json, headers).await
    }

    /// Sends a request with a body of any type.
    async fn send_bytes(
        &self,
        method: Method,
        path: &str,
        (bytes, content_type): (Bytes, &'static str),
        headers: &[(&str, String)],
    ) -> Result<Response<Incoming>, Failure> {
        let response = self
            .exchange(method, path, (bytes, content_type), headers)
            .await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(response).await)
    }

    /// Sends a request and returns the answer, regardless of its status.
    pub(crate) async fn exchange(
        &self,
        method: Method,
        path: &str,
        (bytes, content_type): (Bytes, &'static str),
        headers: &[(&str, String)],
    ) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .method(method)
            .uri(path)
            .header(HOST, self.origin.authority())
            .header(USER_AGENT, concat!("shoal/", env!("CARGO_PKG_VERSION")))
            .header("x-api-key", self.key.as_str())
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(bytes))
            .map_err(|error| Failure::usage(format!("this cannot be asked for: {error}")))?;
        let io = TokioIo::new(self.open().await?);
        let exchange = async {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        match tokio::time::timeout(CALL_TIMEOUT, exchange).await {
            Ok(answered) => answered.map_err(|error| self.broken(&error)),
            Err(_) => {
                let message = format!("the server at {} does not answer", self.origin);
                Err(Failure::new(Kind::Unreachable, message))
            }
        }
    }

    /// The failure for an answer that is no success.
    pub(crate) async fn refused(&self, response: Response<Incoming>) -> Failure {
        let status = response.status();
        let body = Limited::new(response.into_body(), 1 << 20).collect().await;
        let bytes = body.map(|body| body.to_bytes()).unwrap_or_default();
        let said = serde_json::from_slice::<Value>(&bytes).ok();
        let said = said.and_then(|body| Some(body.get("message")?.as_str()?.to_owned()));
        let message = said.unwrap_or_else(|| format!("the server answered {status}"));
        let failure = Failure::of_status(status, message);
        if status == StatusCode::UNAUTHORIZED {
            return failure.with_hint(format!("The key came from {}.", self.key_from));
        }
        failure
    }

    /// The failure for a connection that broke.
    pub(crate) fn broken(&self, error: &dyn std::error::Error) -> Failure {
        let message = format!("the connection to {} broke: {error}", self.origin);
        Failure::new(Kind::Unreachable, message)
            .with_hint("Is this a Shoal server, and does it still run?")
    }
}

pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("the server's answer makes no sense: {error}");
        Failure::new(Kind::Server, message).with_hint("Is this a Shoal server?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_path_or_a_query_is_encoded() {
        assert_eq!(encode("a/b c&d=e?#é"), "a%2Fb%20c%26d%3De%3F%23%C3%A9");
        assert_eq!(encode("plain-1.0_~"), "plain-1.0_~");
    }
}
