//! WebSockets over HTTP/2 (RFC 8441), which browsers use on existing connections: a `CONNECT` with
//! `:protocol`. Servers in sandboxes get the HTTP/1.1 form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::ext::Protocol;

use crate::answer::Refusal;
use crate::forward::{strip_hop_by_hop, upgrade_of};

const WEBSOCKET: &str = "websocket";

/// The protocol upgrade that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// None.
    Nothing,
    /// By HTTP/1.1's two headers.
    Headers(HeaderValue),
    /// A WebSocket on an HTTP/2 stream.
    Stream,
}

impl Upgrade {
    /// The upgrade of `request`.
    ///
    /// # Errors
    /// For any other `CONNECT`: a sandbox is not a proxy to other hosts.
    pub(crate) fn of<B>(request: &Request<B>) -> Result<Self, Refusal> {
        if request.method() != Method::CONNECT {
            return Ok(upgrade_of(request.headers()).map_or(Self::Nothing, Self::Headers));
        }
        match request.extensions().get::<Protocol>() {
            Some(protocol) if protocol.as_str() == WEBSOCKET => Ok(Self::Stream),
            _ => Err(Refusal::Connect),
        }
    }

    /// The protocol to request from the server in the sandbox.
    pub(crate) fn protocol(&self) -> Option<HeaderValue> {
        match self {
            Self::Nothing => None,
            Self::Headers(protocol) => Some(protocol.clone()),
            Self::Stream => Some(HeaderValue::from_static(WEBSOCKET)),
        }
    }
}

/// Converts a stream's request to HTTP/1.1, except for the headers that every request gets.
pub(crate) fn ask<B>(request: &mut Request<B>) {
    *request.method_mut() = Method::GET;
    let mut nonce = [0; 16];
    // The nonce is no secret, only a check that the server speaks WebSocket, so zeros would do.
    let _ = getrandom::fill(&mut nonce);
    if let Ok(nonce) = HeaderValue::from_str(&STANDARD.encode(nonce)) {
        request.headers_mut().insert(SEC_WEBSOCKET_KEY, nonce);
    }
}

/// Converts the answer of a server that accepted to a stream's answer.
pub(crate) fn agree<B>(response: &mut Response<B>) {
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    strip_hop_by_hop(headers);
    headers.remove(SEC_WEBSOCKET_ACCEPT);
    headers.remove(CONTENT_LENGTH);
}
