//! The Connect services and their limits.
//!
//! # Deadlines
//!
//! In Connect, `Connect-Timeout-Ms` bounds the call. In E2B it bounds the process of a `Start`: at
//! the deadline the process is killed, with or without a listener, and the stream ends with
//! `deadline_exceeded`. The library would drop the handler instead. So the header of
//! server-streaming requests is replaced by a [`Lifetime`] before the library sees it, and those
//! handlers enforce it.

use std::sync::Arc;

use connectrpc::{ConnectRpcBody, ConnectRpcService, Limits, Router};
use http::{Request, Response};
use hyper::body::Incoming;
use shoal_protocol::headers::CONNECT_TIMEOUT;
use tower_service::Service;

use crate::caller::{Lifetime, lifetime};
use crate::filesystem::FilesystemService;
use crate::process::ProcessService;

/// Largest message and largest unary request. Clients usually split process input into far smaller
/// pieces, but need not.
const MAX_MESSAGE: usize = 32 << 20;

/// Server-streaming procedures.
const STREAMING: [&str; 3] = [
    "/process.Process/Start",
    "/process.Process/Connect",
    "/filesystem.Filesystem/WatchDir",
];

/// Serves Connect calls.
pub(crate) struct Rpc(ConnectRpcService);

impl Rpc {
    /// A server of both services.
    pub(crate) fn new(process: ProcessService, filesystem: FilesystemService) -> Self {
        let router = Router::new()
            .add_service(Arc::new(process))
            .add_service(Arc::new(filesystem));
        let limits = Limits::default()
            .with_max_message_size(MAX_MESSAGE)
            .with_max_request_body_size(MAX_MESSAGE);
        Self(ConnectRpcService::new(router).with_limits(limits))
    }

    /// Handles one call.
    pub(crate) async fn call(&self, mut request: Request<Incoming>) -> Response<ConnectRpcBody> {
        if STREAMING.contains(&request.uri().path())
            && let Some(header) = request.headers_mut().remove(CONNECT_TIMEOUT)
        {
            let lifetime = header.to_str().map_or(Some(Lifetime::Invalid), lifetime);
            request.extensions_mut().extend(extension(lifetime));
        }
        match self.0.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

fn extension(lifetime: Option<Lifetime>) -> http::Extensions {
    let mut extensions = http::Extensions::new();
    if let Some(lifetime) = lifetime {
        extensions.insert(lifetime);
    }
    extensions
}
