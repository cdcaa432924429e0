//! The OpenAPI document of the E2B and the native API, served at `/openapi.json`.
//!
//! `openapi.json` beside the manifest is generated from the types of the bodies and from the lists of
//! operations (`e2b/operations.rs`, `native/operations.rs`). The generator is compiled for tests only, so
//! the server carries a text and no code for schemas. A test fails when the file is out of date, and
//! another compares the documented routes with those of the router.

#[cfg(test)]
mod tests;

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

#[cfg(test)]
pub(crate) use self::tests::operation;

/// Where the document is served. It needs no key: it describes the program, not an installation.
pub(crate) const PATH: &str = "/openapi.json";

/// The generated document.
const DOCUMENT: &str = include_str!("../openapi.json");

/// `GET /openapi.json`.
pub(crate) async fn serve() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}
