//! The HTTP APIs: each protocol translates to use cases and back, in a module of its own.
//!
//! An API parses a request, calls a port (`shoal_core::ports`) with a permit, and returns the
//! result. It has no rules: one place decides for all protocols what a sandbox may do. The APIs do
//! not know what implements the ports: the engine on one machine, or another backend.

#![forbid(unsafe_code)]

mod audit;
mod auth;
mod backend;
mod body;
mod config;
mod e2b;
mod error;
mod host;
mod in_flight;
mod labels;
mod mcp;
mod native;
mod openapi;
mod quantities;
mod query;
mod rate;
mod request_id;
mod router;
mod routes;
mod stopping;
mod texts;
mod timeouts;

pub use audit::ClientAddress;
pub use config::ApiConfig;
pub use in_flight::InFlight;
pub use rate::RateLimit;
pub use router::router;
pub use stopping::stopping;
