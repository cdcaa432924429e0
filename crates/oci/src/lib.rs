//! The driver of Shoal for one machine: OCI runtimes, images, overlays, network slots, cgroups.
//!
//! Whatever belongs to a sandbox carries its id or is named in its manifest, so that a server
//! that was killed at any moment finds all of it again, and can clear all of it.

mod bundle;
pub mod doctor;
mod driver;
pub mod export;
pub mod images;
mod layers;
mod runtime;

pub use driver::{OciConfig, OciDriver, OpenError};
pub use images::{ImageStore, StoreConfig};
pub use layers::{LayerSource, LayerStack, SandboxLayers};
pub use runtime::{Kind as RuntimeKind, Missing, Patience, RuntimeConfig};
