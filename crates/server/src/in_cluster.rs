//! What the commands for a Kubernetes cluster have in common: a log and a runtime.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Runs a command to its end, and prints its failure.
pub(crate) fn run(log_level: &str, command: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    match start(log_level, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(log_level: &str, command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let filter = EnvFilter::builder()
        .parse(log_level)
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
    runtime.block_on(command)
}
