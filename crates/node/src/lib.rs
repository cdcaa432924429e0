//! The parts of a node that any driver on this machine needs: disk, network slots, cgroups, processes,
//! mounts, and the directories that an installation keeps.
//!
//! Nothing here knows an OCI runtime or a registry. Everything that belongs to a sandbox carries its id
//! or is named in its manifest, so that a server that was killed at any moment finds all of it again
//! and can clear all of it.

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
