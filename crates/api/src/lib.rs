//! The rims: each protocol is a translation into use cases and back, in a folder of its own.
//!
//! A rim parses, asks the engine with a permit, and shows what came of it. It has no rules: what a
//! sandbox may do is decided in one place for all protocols.

#![forbid(unsafe_code)]

mod audit;
mod auth;
mod body;
mod e2b;
mod error;
mod host;
mod in_flight;
mod labels;
mod native;
mod patience;
mod quantities;
mod query;
mod rate;
mod request_id;
mod router;
mod texts;

pub use audit::ClientAddress;
pub use in_flight::InFlight;
pub use rate::RateLimit;
pub use router::{ApiConfig, router};
