//! `shoal operator`: log and runtime around the controllers.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use shoal_operator::OperatorArgs;
use tracing_subscriber::EnvFilter;

/// Runs the controllers until a signal ends them.
pub(crate) fn run(args: OperatorArgs) -> ExitCode {
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: OperatorArgs) -> anyhow::Result<()> {
    let filter = EnvFilter::builder()
        .parse(&args.log_level)
        .context("--log-level")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    // One cryptography provider for the whole program; a second call is a bug.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        anyhow::bail!("a cryptography provider is already installed");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(shoal_operator::run(args))?;
    Ok(())
}
