//! The driver of Shoal for one machine.

mod cgroup;
mod disk;
mod network;

pub use disk::DiskConfig;
pub use network::NetworkConfig;
