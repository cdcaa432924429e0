//! The client commands for people and scripts.
//!
//! clap parses a command into arguments. The command calls the server's API (E2B's routes for
//! sandboxes, native ones for the rest) and prints a table for people or JSON for programs. Commands
//! and files inside a sandbox go through the gateway to its daemon.
//!
//! ```text
//!   arguments ─▶ connection ─▶ calls ─▶ server            (sandboxes, keys, images, templates)
//!                    └───────▶ inside ─▶ gateway ─▶ envd  (processes, files)
//!   arguments ─▶ cluster ─▶ API server                    (sandboxes of Kubernetes)
//! ```
//!
//! A failure is a [`failure::Failure`]: the cause, the remedy, and the exit code.

#![forbid(unsafe_code)]

mod calls;
mod cluster;
mod completions;
mod confirm;
mod connection;
mod failure;
mod find;
mod image;
mod inside;
mod key;
mod live;
mod manual;
mod mcp;
mod output;
mod parse;
mod pool;
mod progress;
mod sandbox;
mod session;
mod shortcuts;
mod snapshot;
mod stdin;
mod team;
mod template;
mod terminal;

use std::process::ExitCode;

use clap::Subcommand;

pub use completions::CompletionsArgs;
pub use failure::{EXIT_CODES, USAGE};
pub use manual::ManArgs;
pub use shortcuts::{expand, explain};

/// The client's commands.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Create, list, use and kill sandboxes.
    Sandbox(sandbox::SandboxArgs),
    /// Create, list and use sessions: terminal windows whose machine comes and goes.
    Session(session::SessionArgs),
    /// Create, list, remove, export and import snapshots.
    Snapshot(snapshot::SnapshotArgs),
    /// Create, list and remove API keys.
    Key(key::KeyArgs),
    /// List teams and set their limits.
    Team(team::TeamArgs),
    /// Pull, list, import and remove images on the server's machine.
    Image(image::ImageArgs),
    /// List, show, create, build and remove templates.
    Template(template::TemplateArgs),
    /// List warm pools and replace their members.
    Pool(pool::PoolArgs),
    /// Serve sandboxes to an agent over standard input and output (MCP).
    Mcp(mcp::McpArgs),
    /// List, claim and use the sandboxes of a Kubernetes cluster.
    Cluster(cluster::ClusterArgs),
}

/// Runs a command, prints the result, and returns the exit code.
#[must_use]
pub fn run(command: ClientCommand) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("shoal: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        match command {
            ClientCommand::Sandbox(args) => sandbox::run(args).await,
            ClientCommand::Session(args) => session::run(args).await,
            ClientCommand::Snapshot(args) => snapshot::run(args).await,
            ClientCommand::Key(args) => key::run(args).await,
            ClientCommand::Team(args) => team::run(args).await,
            ClientCommand::Image(args) => image::run(args).await,
            ClientCommand::Template(args) => template::run(args).await,
            ClientCommand::Pool(args) => pool::run(args).await,
            ClientCommand::Mcp(args) => mcp::run(args).await,
            ClientCommand::Cluster(args) => cluster::run(args).await,
        }
    });
    // Something may still wait for a standard input that never ends.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code())
        }
    }
}
