//! The driver of Shoal for one machine.

mod bundle;
mod cgroup;
mod disk;
mod network;
mod rootfs;
mod runtime;

pub use disk::DiskConfig;
pub use network::NetworkConfig;
pub use runtime::{Missing, RuntimeConfig};
