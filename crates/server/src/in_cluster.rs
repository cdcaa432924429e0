//! Shared by the commands for a Kubernetes cluster: a log and a runtime.

use std::process::ExitCode;

use crate::config::LogFormat;
use crate::{memory, telemetry};

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
    // One cryptography provider for the whole program; a second call is a bug.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        anyhow::bail!("a cryptography provider is already installed");
    }
    let traces = telemetry::log(log_level, LogFormat::Text)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.spawn(memory::give_back());
    let ended = runtime.block_on(command);
    traces.end();
    ended
}
