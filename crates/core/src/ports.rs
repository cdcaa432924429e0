//! The use cases as ports: what the API crates call, and what a backend implements.
//!
//! On one machine the backend is the engine. A backend that keeps its records elsewhere implements the
//! same traits, and the APIs serve from either without knowing which. The errors here say what failed
//! in the domain's own words: the text and the status of an answer belong to the API that gives it.

pub mod access;
pub mod builds;
pub mod catalogue;
pub mod create;
pub mod inside;
pub mod list;
pub mod observe;
pub mod pools;
pub mod resolve;
pub mod sandboxes;
pub mod snapshots;
pub mod templates;

/// The system has no randomness to give. A working machine has some once it has started.
#[derive(Debug, thiserror::Error)]
#[error("the system has no randomness: {0}")]
pub struct NoEntropy(pub String);
