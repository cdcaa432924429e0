//! The wire of `shoal-envd`, the daemon inside every sandbox, from both ends.
//!
//! * [`process`] and [`filesystem`]: the messages and services of its Connect RPC, generated from
//!   `proto/`. Each comes with a server trait, and with a client under the feature `client`.
//! * [`init`], [`metrics`], [`files`], [`error`]: the bodies of its plain HTTP endpoints.
//! * [`signature`]: signed URLs, which the daemon checks and the gateway recognises a sandbox by.
//! * [`token`]: the secret that a caller must know.
//! * [`build`]: the bodies of template builds, which the server and the command line share.
//! * [`native`]: the bodies of Shoal's own API, which the server and the command line share.
//! * `client` (under the feature of that name): a client for the control plane and the command
//!   line.
//!
//! The wire is E2B's, so that its SDKs work unchanged; names and numbers here are theirs. A
//! sandbox keeps the daemon that it was born with, so this surface may only grow:
//! `schema/envd.txt` holds its present state, and a test compares.
//!
//! # Connect by a library
//!
//! [`connectrpc`] frames, encodes and maps errors for both ends and both codecs (JSON as proto3
//! defines it, so `snake_case` names, integers as text or number, and enums by name or number are
//! all read). One rule of E2B's is not Connect's: the `Connect-Timeout-Ms` of a `Start` is the life
//! of the process, and passes over the handler's head. The daemon therefore takes that header off
//! streaming requests before the library sees it; see `rpc` in `shoal-envd`.

#![forbid(unsafe_code)]

pub mod build;
#[cfg(feature = "client")]
pub mod client;
pub mod error;
pub mod files;
pub mod headers;
pub mod init;
pub mod metrics;
pub mod native;
pub mod signature;
pub mod token;

/// What the build script made of `proto/`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::or_fun_call,
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

/// The port on which the daemon listens in every sandbox (spec: E2B's envd).
pub const ENVD_PORT: u16 = 49983;

/// The port of the code interpreter, in sandboxes with kernels.
pub const INTERPRETER_PORT: u16 = 49999;

/// The version of E2B's envd whose behaviour the daemon shows. Clients switch features on by it, so
/// it is not a version of ours.
pub const ENVD_VERSION: &str = "0.6.13";

/// The `Upgrade` token of `GET /tunnel/{port}`, by which the gateway reaches a port that listens
/// on the sandbox's loopback only.
pub const TUNNEL_UPGRADE: &str = "shoal-tunnel";

/// The routes of the daemon that are for the host alone. The gateway answers for them.
pub const INTERNAL_ROUTES: [&str; 7] = [
    "init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "tunnel",
];

/// Whether a path leads to one of [`INTERNAL_ROUTES`], or might: blanks, doubled slashes and
/// percent signs are seen through, because whoever hides a route has a reason.
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
