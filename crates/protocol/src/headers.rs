//! Names of headers, in lower case.

use http::HeaderName;

/// The secret that opens the daemon.
pub const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");

/// Names the sandbox, on requests that go through the gateway.
pub const SANDBOX_ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");

/// Names the port inside the sandbox, on requests that go through the gateway.
pub const SANDBOX_PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");

/// The daemon's version, on every answer to `POST /init`.
pub const ENVD_VERSION: HeaderName = HeaderName::from_static("x-envd-version");

/// After how many idle seconds a stream shall send a sign of life.
pub const KEEPALIVE_INTERVAL: HeaderName = HeaderName::from_static("keepalive-ping-interval");

/// The client's deadline in milliseconds. On `Start` it is the life of the process.
pub const CONNECT_TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");

/// Begins the name of each header that attaches metadata to an uploaded file.
pub const METADATA_PREFIX: &str = "x-metadata-";
