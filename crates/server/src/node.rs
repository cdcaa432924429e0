//! `shoal node`: log and runtime around the agent.

use std::process::ExitCode;

use nix::sys::stat::{Mode, umask};
use shoal_agent::NodeArgs;

use crate::{in_cluster, memory};

/// Runs the agent until a signal ends it.
pub(crate) fn run(args: NodeArgs) -> ExitCode {
    // Other users cannot read its checkpoints.
    umask(Mode::from_bits_truncate(0o077));
    memory::share_arenas();
    let log_level = args.log_level.clone();
    in_cluster::run(&log_level, async { Ok(shoal_agent::run(args).await?) })
}
