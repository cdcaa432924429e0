//! The data path: from a host name or two headers to a port in a sandbox.
//!
//! It reads the catalogue and commits nothing, so it can serve from another process as well as
//! from this one. No body is held whole: a slow reader slows the writer, in both directions.

#![forbid(unsafe_code)]

mod answer;
mod door;
mod forward;
mod guarded;
mod limit;
mod places;
mod proxy;
mod signed;
mod target;
mod tunnel;
mod upstream;

pub use door::Door;
pub use proxy::{Client, Gateway, GatewayBody, GatewayConfig, OwnAnswer};
pub use target::{InvalidTarget, Target, find as find_target};
