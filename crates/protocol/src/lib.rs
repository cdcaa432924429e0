//! Wire protocol of `shoal-envd`, the daemon inside every sandbox, for both ends.
//!
//! * [`process`] and [`filesystem`]: messages and services of its Connect RPC, generated from
//!   `proto/`, each with a server trait, and with a client under the feature `client`.
//! * [`init`], [`activity`], [`metrics`], [`files`], [`error`]: bodies of its plain HTTP endpoints.
//! * [`signature`]: signed URLs, which the daemon verifies and by which the gateway finds a
//!   sandbox.
//! * [`token`]: the access token.
//! * [`pass`]: who may give a daemon in a pod its first token.
//! * [`sync`]: bodies of the routes for the files of sessions.
//! * [`build`]: bodies of template builds, shared by the server and the command line.
//! * [`native`]: bodies of Shoal's native API, shared by the server and the command line.
//! * `client` (feature of that name): a client for the control plane and the command line.
//!
//! The protocol is E2B's, so that its SDKs work unchanged; so are its names and numbers. A sandbox
//! keeps the daemon that it was created with, so the protocol may only grow: `schema/envd.txt`
//! holds its present state, which a test compares.
//!
//! # Connect library
//!
//! [`connectrpc`] handles framing, encoding and errors for both ends and both codecs. (It accepts
//! JSON as defined by proto3: `snake_case` names, integers as text or number, enums by name or
//! number.) One rule of E2B is not Connect's: the `Connect-Timeout-Ms` of a `Start` is the lifetime
//! of the process, not of the call. So the daemon removes that header from streaming requests
//! before the library sees it; see `rpc` in `shoal-envd`.

#![forbid(unsafe_code)]

pub mod activity;
pub mod build;
#[cfg(feature = "client")]
pub mod client;
pub mod error;
pub mod files;
pub mod headers;
pub mod init;
pub mod metrics;
pub mod native;
pub mod pass;
pub mod signature;
pub mod sync;
pub mod token;

/// Code generated from `proto/`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::or_fun_call,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_lossless,
    reason = "generated"
)]
mod generated {
    connectrpc::include_generated!();
}

pub use generated::{filesystem, process};

/// Port of the daemon in every sandbox (spec: E2B's envd).
pub const ENVD_PORT: u16 = 49983;

/// Port of the code interpreter, in sandboxes with kernels.
pub const INTERPRETER_PORT: u16 = 49999;

/// Version of E2B's envd whose behaviour the daemon implements. Clients enable features by it, so
/// it is not Shoal's version.
pub const ENVD_VERSION: &str = "0.6.13";

/// `Upgrade` token of `GET /tunnel/{port}`, by which the gateway reaches loopback ports of the
/// sandbox.
pub const TUNNEL_UPGRADE: &str = "shoal-tunnel";

/// Routes of the daemon for the host only. The gateway does not forward them.
pub const INTERNAL_ROUTES: [&str; 9] = [
    "init", "freeze", "unfreeze", "activity", "collapse", "fsfreeze", "fsthaw", "sync", "tunnel",
];

/// Whether a path matches one of [`INTERNAL_ROUTES`], also when obfuscated by blanks, doubled
/// slashes or percent encoding.
#[must_use]
pub fn is_internal_route(path: &str) -> bool {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let first = decoded
        .split(['/', '\\', ';', '?', '#'])
        .map(str::trim)
        .find(|part| !part.is_empty() && *part != ".");
    first.is_some_and(|first| {
        INTERNAL_ROUTES
            .iter()
            .any(|route| route.eq_ignore_ascii_case(first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_routes_are_seen_through_disguises() {
        for path in [
            "/init",
            "/init/",
            "//init",
            "/./init",
            "/%69nit",
            "/INIT",
            "/tunnel/80",
            "/init;x",
            "/%2finit",
            "/sync/apply",
        ] {
            assert!(is_internal_route(path), "{path}");
        }
        for path in [
            "/",
            "/health",
            "/files",
            "/initial",
            "/process.Process/List",
            "/files/init",
        ] {
            assert!(!is_internal_route(path), "{path}");
        }
    }
}
