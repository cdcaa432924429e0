//! The parts of a node that any driver on this machine needs: disk, network slots, cgroups,
//! processes, mounts, and the directories of an installation.
//!
//! This crate knows neither OCI runtimes nor registries. Every resource of a sandbox carries the
//! sandbox's id or is named in its manifest. After a server was killed at any moment, the next one
//! can find and remove all of them.

mod blocking;
pub mod cgroup;
pub mod daemon;
pub mod disk;
pub mod exhausted;
pub mod home;
pub mod host_limits;
pub mod instances;
pub mod lock;
pub mod machine;
pub mod manifest;
pub mod modes;
pub mod network;
pub mod output;
pub mod pidfd;
pub mod rootfs;
pub mod saved;
pub mod watch;

pub use blocking::{Interrupted, blocking};
pub use disk::DiskConfig;
pub use network::NetworkConfig;
