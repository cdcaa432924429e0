//! All routes, and the middleware in front of them.

use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, Method, StatusCode};
use shoal_core::ports::Ports;
use shoal_protocol::native;
use tower_http::cors::{Any, CorsLayer};

use crate::audit::{self, Audit};
use crate::auth::require_key;
use crate::backend::Backend;
use crate::config::ApiConfig;
use crate::e2b;
use crate::error::ApiError;
use crate::in_flight::{Calls, count};
use crate::mcp;
use crate::native::enveloped;
use crate::openapi;
use crate::rate::{Rates, limit};
use crate::request_id::identify;
use crate::routes::Routes;
use crate::timeouts::within;

/// The largest request body, in bytes. The same as E2B's.
const BODY_MAX: usize = 16 << 20;

/// The timeout of a call. The same as E2B's.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(70);

/// The timeout of an upload: a hundred megabytes over a slow line.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(900);

/// A second path of the E2B API, for clients of other systems.
const E2B_PREFIX: &str = "/e2b/v1";

/// Every route of every protocol, served from these ports.
pub fn router(ports: Ports, config: ApiConfig) -> Router {
    let backend = Backend::from(ports);
    let rates = config.rate_limit.and_then(Rates::new);
    let calls = Calls::new(config.in_flight);
    let protected = |routes: Routes| -> Router<Backend> {
        let routes = Router::from(routes);
        let routes = match rates.clone() {
            Some(rates) => routes.layer(from_fn_with_state::<_, Rates, _>(rates, limit)),
            None => routes,
        };
        routes
            .layer(from_fn_with_state::<_, Calls, _>(calls.clone(), count))
            .layer(from_fn_with_state(backend.clone(), require_key))
    };
    let uploads = Router::new().nest(
        native::PREFIX,
        within(UPLOAD_TIMEOUT, protected(crate::native::uploads()))
            .method_not_allowed_fallback(no_method)
            .layer(from_fn(enveloped)),
    );
    let mcp = match config.mcp.clone() {
        Some(mcp) => timely(protected(mcp::routes()))
            .layer(Extension(mcp))
            .layer(from_fn(mcp::challenge)),
        None => Router::new(),
    };
    let audit = Audit {
        clock: backend.clock.clone(),
        log: config.audit.clone(),
    };
    // The last layer is the first to handle a request.
    Router::new()
        .merge(timely(protected(e2b::routes())))
        .nest(E2B_PREFIX, timely(protected(e2b::routes())))
        .nest(
            native::PREFIX,
            timely(protected(crate::native::routes()))
                .fallback(no_route)
                .method_not_allowed_fallback(no_method)
                .layer(from_fn(enveloped)),
        )
        .merge(Router::from(open_routes()))
        .merge(mcp)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .merge(uploads)
        .layer(Extension(config))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .merge(archives())
        .layer(from_fn_with_state(audit, audit::record))
        .layer(cors())
        .layer(from_fn(identify))
        .with_state(backend)
}

/// The server's own routes, which need no key.
pub(crate) fn open_routes() -> Routes {
    Routes::new()
        .route("/health", get(health))
        .route(openapi::PATH, get(openapi::serve))
}

/// Their operations in the OpenAPI document.
#[cfg(test)]
pub(crate) fn operations() -> Vec<openapi::operation::Operation> {
    use openapi::operation::{Content, Dialect, Group};

    let server = Group(Dialect::Server, "Server");
    vec![
        server
            .op("GET", "/health", "getHealth", "Whether the server answers")
            .open()
            .empty(204),
        server
            .op("GET", openapi::PATH, "getOpenApi", "This document")
            .open()
            .answer(200, Content::Object, &[]),
    ]
}

fn timely(routes: Router<Backend>) -> Router<Backend> {
    within(HANDLER_TIMEOUT, routes)
}

/// Uploads for builds, which may be larger and slower than other calls.
fn archives() -> Router<Backend> {
    Router::from(e2b::uploads::routes()).layer(DefaultBodyLimit::disable())
}

async fn health() -> StatusCode {
    StatusCode::NO_CONTENT
}

async fn no_route() -> impl IntoResponse {
    ApiError::not_found("there is no such route")
}

async fn no_method() -> impl IntoResponse {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "the route does not take this method",
    )
}

/// Any web page may call: a call's rights are in its key, which a browser never sends by itself.
fn cors() -> CorsLayer {
    let names = |names: &[&'static str]| -> Vec<HeaderName> {
        names
            .iter()
            .map(|name| HeaderName::from_static(name))
            .collect()
    };
    let mut asked = names(&[
        "x-api-key",
        "x-team-id",
        "x-request-id",
        "idempotency-key",
        "if-match",
        "if-none-match",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "shoal-template",
        "lang",
        "lang_version",
        "package_version",
        "publisher",
        "sdk_runtime",
        "system",
        "browser",
        "processor",
        "release",
        "service_version",
    ]);
    asked.extend([AUTHORIZATION, CONTENT_TYPE, USER_AGENT]);
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::HEAD,
            Method::OPTIONS,
        ])
        .allow_headers(asked)
        .expose_headers(names(&[
            "x-next-token",
            "x-total-running",
            "ratelimit-limit",
            "ratelimit-remaining",
            "ratelimit-reset",
            "retry-after",
            "x-request-id",
            "server-timing",
            "etag",
            "mcp-session-id",
        ]))
}
