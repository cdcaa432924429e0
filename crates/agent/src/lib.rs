//! `shoal node`: saves the pods of its node when a `Checkpoint` requests it, and keeps the checkpoints.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod agent;
mod args;
mod cluster;
mod failure;
mod fetch;
mod garbage;
mod install;
mod objects;
mod peers;
mod plan;
mod room;
mod runsc;
mod save;
mod share;
mod source;
mod start;
mod transfers;

pub use self::args::NodeArgs;
pub use self::install::{
    ConfigError, InstallArgs, InstallError, Installed, Report, install, restart,
};
pub use self::start::{NodeError, run};
