//! The rims: each protocol is a translation into use cases and back, in a folder of its own.
//!
//! A rim parses, calls a port (`shoal_core::ports`) with a permit, and shows the result. It has no rules:
//! what a sandbox may do is decided in one place for all protocols. The rims do not know what implements
//! the ports: the engine on one machine, or another backend.

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
mod native;
mod openapi;
mod patience;
mod quantities;
mod query;
mod rate;
mod request_id;
mod router;
mod routes;
mod stopping;
mod texts;

pub use audit::ClientAddress;
pub use config::ApiConfig;
pub use in_flight::InFlight;
pub use rate::RateLimit;
pub use router::router;
pub use stopping::stopping;
