//! The controllers of `agents.kruise.io`.

mod init_secret;
mod sandbox;
mod set;
mod slim;
mod write;

pub(crate) use init_secret::ensure as ensure_init_secret;
pub(crate) use sandbox::{RuntimeInjection, SandboxController};
pub(crate) use set::SandboxSetController;
pub(crate) use slim::Pod;
