//! Sessions: files, windows and notes that outlive the sandbox in which they are used.
//!
//! It is based on the ports of the other use cases (`shoal_core::ports`), so it works with every backend: a session's machine
//! is an ordinary sandbox of its team. So far a session has its machine, its terminal windows, its secrets
//! and its memories; its files follow.

#![forbid(unsafe_code)]

mod events;
mod files;
#[cfg(test)]
mod local;
#[cfg(test)]
mod memory_home;
#[cfg(test)]
mod memory_store;
mod seal;
mod secrets;
mod service;
pub mod window;

pub use self::events::WindowEvents;
pub use self::files::Contents;
pub use self::seal::SealingKey;
pub use self::secrets::{FollowSecrets, Secrets};
pub use self::service::{MachineSupport, SessionParts, SessionService, SessionTemplates};
