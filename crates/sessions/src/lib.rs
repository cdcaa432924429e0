//! Sessions: files, windows and notes that outlive the sandbox in which they are used.
//!
//! It stands on the ports of the other use cases (`shoal_core::ports`), so it works with every backend: a session's machine
//! is an ordinary sandbox of its team. So far this crate has the terminal windows alone.

#![forbid(unsafe_code)]

pub mod window;

#[cfg(test)]
mod memory_home;
