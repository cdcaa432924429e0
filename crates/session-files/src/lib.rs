//! The files of a sandbox that belong to its session.
//!
//! The server and the daemon inside every sandbox decide by these rules, so they are in a crate that both use. It does
//! no I/O.

#![forbid(unsafe_code)]

#[cfg(feature = "gitignore")]
pub mod gitignore;
pub mod interrupted;
pub mod path;
pub mod returning;
pub mod state;
