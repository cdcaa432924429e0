//! The caller of a request, as the API layer has authenticated it.

use std::net::IpAddr;

use http::uri::{Authority, Scheme};
use shoal_core::auth::Principal;

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The holder of the key.
    pub principal: Principal,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The id of the request.
    pub request: Option<String>,
    /// The scheme by which it reaches the server.
    pub scheme: Scheme,
    /// The host and port by which it reaches the server.
    pub host: Option<Authority>,
}
