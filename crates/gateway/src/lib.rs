//! The data path: from a host name, headers or a path to a port in a sandbox.
//!
//! The gateway reads the routing table and commits nothing, so it could run in another process.
//! Bodies are streamed: a slow reader slows the writer down, in both directions.

#![forbid(unsafe_code)]

mod answer;
mod forward;
mod guarded;
mod kruise_path;
mod limit;
mod path_route;
mod places;
mod preview;
mod proxy;
mod signed;
mod target;
mod tunnel;
mod upstream;

pub use kruise_path::KruisePath;
pub use path_route::PathRoute;
pub use preview::find as find_preview;
pub use proxy::{Client, Gateway, GatewayBody, GatewayConfig, OwnAnswer};
pub use target::{InvalidTarget, Target, find as find_target};
