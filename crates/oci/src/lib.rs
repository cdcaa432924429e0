//! The driver of Shoal for one machine: OCI runtimes, images, overlays, network slots, cgroups.
//!
//! Whatever belongs to a sandbox carries its id or is named in its manifest, so that a server
//! that was killed at any moment finds all of it again, and can clear all of it.

mod bundle;
mod cgroup;
mod disk;
pub mod doctor;
mod driver;
mod exhausted;
pub mod export;
mod home;
mod host_limits;
pub mod images;
mod layers;
mod lock;
mod machine;
mod manifest;
mod modes;
mod network;
mod output;
mod pidfd;
mod rootfs;
mod runtime;
mod saved;
mod watch;

pub use disk::DiskConfig;
pub use driver::{OciConfig, OciDriver, OpenError};
pub use images::{ImageStore, StoreConfig};
pub use layers::{LayerSource, LayerStack, SandboxLayers};
pub use network::NetworkConfig;
pub use runtime::{Kind as RuntimeKind, Missing, Patience, RuntimeConfig};
