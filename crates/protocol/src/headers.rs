//! Header names in lower case.

use http::HeaderName;

/// Access token of the daemon.
pub const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");

/// Pass of the first `POST /init` in a pod.
pub const INIT_PASS: HeaderName = HeaderName::from_static("x-init-pass");

/// Sandbox id of a request through the gateway.
pub const SANDBOX_ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");

/// Sandbox port of a request through the gateway.
pub const SANDBOX_PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");

/// Version of the daemon, in every response to `POST /init`.
pub const ENVD_VERSION: HeaderName = HeaderName::from_static("x-envd-version");

/// Requested keepalive interval of a stream, in seconds.
pub const KEEPALIVE_INTERVAL: HeaderName = HeaderName::from_static("keepalive-ping-interval");

/// The client's timeout in milliseconds. For `Start` it is the lifetime of the process.
pub const CONNECT_TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");

/// Prefix of headers that set metadata of an uploaded file.
pub const METADATA_PREFIX: &str = "x-metadata-";
