//! Shoal's driver for one machine: OCI bundles, the runtimes runsc and runc, and exports of
//! snapshots. It uses the disks, networks and mounts of `shoal-node`, and the layers of
//! `shoal-images`.

mod bundle;
pub mod doctor;
mod driver;
pub mod export;
mod runtime;

pub use driver::{OciConfig, OciDriver, OpenDriverError};
pub use runtime::{Kind as RuntimeKind, Missing, RuntimeConfig, RuntimeTimeouts};
