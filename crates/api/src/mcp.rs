//! `/mcp`: the streamable HTTP transport of the Model Context Protocol.
//!
//! It describes its tools itself, so it is not in the OpenAPI document.

use axum::Extension;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::post;
use http::header::WWW_AUTHENTICATE;
use http::uri::Scheme;
use http::{HeaderValue, StatusCode};
use shoal_core::auth::Principal;
use shoal_mcp::{Caller, Mcp};

use crate::audit::ClientAddress;
use crate::host::host_of;
use crate::in_flight::Call;
use crate::request_id::REQUEST_ID;
use crate::routes::Routes;

/// The path of the endpoint.
pub(crate) const PATH: &str = "/mcp";

pub(crate) fn routes() -> Routes {
    Routes::new().route(PATH, post(serve).get(serve).delete(serve))
}

async fn serve(
    Extension(mcp): Extension<Mcp>,
    Extension(principal): Extension<Principal>,
    Extension(call): Extension<Call>,
    request: Request,
) -> Response {
    let extensions = request.extensions();
    let id = request.headers().get(&REQUEST_ID);
    let caller = Caller {
        principal,
        address: extensions.get::<ClientAddress>().map(|client| client.0),
        request: id.and_then(|id| id.to_str().ok()).map(str::to_owned),
        scheme: extensions.get().cloned().unwrap_or(Scheme::HTTP),
        host: host_of(request.headers(), request.uri()).and_then(|host| host.parse().ok()),
    };
    let request = request.map(|body| call.counted(body));
    mcp.answer(caller, request).await.map(Body::new)
}

/// Says how to authenticate, as the protocol demands.
pub(crate) async fn challenge(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer realm=\"shoal\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
    }
    response
}
