//! Sessions: files, windows and notes that outlive the sandbox in which they are used.
//!
//! It stands on the ports of the other use cases (`shoal_core::ports`), so it works with every backend: a session's machine
//! is an ordinary sandbox of its team. So far a session has its machine and its terminal windows; its files, secrets and
//! notes follow.

#![forbid(unsafe_code)]

#[cfg(test)]
mod local;
#[cfg(test)]
mod memory_home;
mod service;
pub mod window;

pub use self::service::{SessionParts, SessionService, SessionTemplates};
