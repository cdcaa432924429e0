//! `shoal operator`: log and runtime around the controllers.

use std::process::ExitCode;

use shoal_operator::OperatorArgs;

use crate::in_cluster;

/// Runs the controllers until a signal ends them.
pub(crate) fn run(args: OperatorArgs) -> ExitCode {
    let log_level = args.log_level.clone();
    in_cluster::run(&log_level, async { Ok(shoal_operator::run(args).await?) })
}
