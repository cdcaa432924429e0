//! The client commands: what people and scripts say to a server.
//!
//! A command is read by clap into arguments, turned into calls of the server's API (E2B's routes
//! for sandboxes, Shoal's own for the rest), and printed as a table for people or as JSON for
//! programs. What happens inside a sandbox goes through the gateway to its daemon.
//!
//! ```text
//!   arguments ─▶ connection ─▶ calls ─▶ server            (sandboxes, keys, images, templates)
//!                    └───────▶ inside ─▶ gateway ─▶ envd  (processes, files)
//! ```
//!
//! A failure is a [`failure::Failure`]: what failed, what to do, and the code the program exits
//! with.

#![forbid(unsafe_code)]

mod calls;
mod completions;
mod connection;
pub mod dockerfile;
mod failure;
mod find;
mod image;
mod inside;
mod key;
mod live;
mod output;
mod parse;
mod pool;
mod progress;
mod sandbox;
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
pub use shortcuts::{expand, explain};

/// The client's commands.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Make, list, use and end sandboxes.
    Sandbox(sandbox::SandboxArgs),
    /// Take, list, remove and carry snapshots.
    Snapshot(snapshot::SnapshotArgs),
    /// Make, list and remove API keys.
    Key(key::KeyArgs),
    /// List teams, and set what they may have.
    Team(team::TeamArgs),
    /// Pull, list, import and remove images on the server's machine.
    Image(image::ImageArgs),
    /// List, look at, make and remove templates.
    Template(template::TemplateArgs),
    /// Look at the sandboxes that are there ahead of time, and replace them.
    Pool(pool::PoolArgs),
}

/// Runs a command, prints what came of it, and says what to exit with.
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
            ClientCommand::Snapshot(args) => snapshot::run(args).await,
            ClientCommand::Key(args) => key::run(args).await,
            ClientCommand::Team(args) => team::run(args).await,
            ClientCommand::Image(args) => image::run(args).await,
            ClientCommand::Template(args) => template::run(args).await,
            ClientCommand::Pool(args) => pool::run(args).await,
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
