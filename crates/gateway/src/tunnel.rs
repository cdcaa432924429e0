//! A WebSocket that is asked for over HTTP/2 (RFC 8441), as browsers do on a connection that they
//! have: a `CONNECT` with `:protocol`. Servers in sandboxes are asked for it as HTTP/1.1 has it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::ext::Protocol;

use crate::answer::Refusal;
use crate::forward::{strip_hop_by_hop, upgrade_of};

const WEBSOCKET: &str = "websocket";

/// How a request asks for another protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It does not.
    Nothing,
    /// By the two headers of HTTP/1.1.
    Upgrade(HeaderValue),
    /// For a WebSocket on a stream of HTTP/2.
    Stream,
}

impl Asked {
    /// What `request` asks for.
    ///
    /// # Errors
    /// When it is a `CONNECT` to anything else: a sandbox is no proxy by which others are reached.
    pub(crate) fn by<B>(request: &Request<B>) -> Result<Self, Refusal> {
        if request.method() != Method::CONNECT {
            return Ok(upgrade_of(request.headers()).map_or(Self::Nothing, Self::Upgrade));
        }
        match request.extensions().get::<Protocol>() {
            Some(protocol) if protocol.as_str() == WEBSOCKET => Ok(Self::Stream),
            _ => Err(Refusal::Connect),
        }
    }

    /// What a server in a sandbox is asked for.
    pub(crate) fn protocol(&self) -> Option<HeaderValue> {
        match self {
            Self::Nothing => None,
            Self::Upgrade(protocol) => Some(protocol.clone()),
            Self::Stream => Some(HeaderValue::from_static(WEBSOCKET)),
        }
    }
}

/// Makes the request of a stream one of HTTP/1.1, but for what every request there gets.
pub(crate) fn ask<B>(request: &mut Request<B>) {
    *request.method_mut() = Method::GET;
    let mut nonce = [0; 16];
    // It is no secret: it shows that whoever answers knows what a WebSocket is. So zeros do too.
    let _ = getrandom::fill(&mut nonce);
    if let Ok(nonce) = HeaderValue::from_str(&STANDARD.encode(nonce)) {
        request.headers_mut().insert(SEC_WEBSOCKET_KEY, nonce);
    }
}

/// Makes the answer of a server that agreed one on a stream.
pub(crate) fn agree<B>(response: &mut Response<B>) {
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    strip_hop_by_hop(headers);
    headers.remove(SEC_WEBSOCKET_ACCEPT);
    headers.remove(CONTENT_LENGTH);
}
