//! `shoal sandbox`.

mod copy;
mod create;
mod exec;
mod get;
pub(crate) mod interruptions;
mod kill;
mod list;
mod logs;
mod rest;
mod session;
mod shell;
mod top;
mod transfer;
mod url;

use clap::{Args, Subcommand};

use crate::connection::ConnectionArgs;
use crate::failure::{EXIT_CODES, Failure};
pub(crate) use list::Listed;

/// What to do with sandboxes.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SandboxArgs {
    #[command(subcommand)]
    command: SandboxCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum SandboxCommand {
    /// Make a sandbox and print its id.
    Create(create::CreateArgs),
    /// List sandboxes, the newest first.
    #[command(visible_alias = "list")]
    Ls(list::ListArgs),
    /// Show all that is known of a sandbox.
    Get(get::GetArgs),
    /// End sandboxes for good.
    #[command(visible_alias = "rm")]
    Kill(kill::KillArgs),
    /// Save a sandbox, memory and all, and stop it.
    Pause(rest::PauseArgs),
    /// Let a paused sandbox go on.
    Resume(rest::ResumeArgs),
    /// Start others that go on from where a sandbox is, and print their ids.
    Fork(rest::ForkArgs),
    /// Give a sandbox other limits while it runs.
    Resize(rest::ResizeArgs),
    /// Run a command in a sandbox, and exit as it does.
    Exec(exec::ExecArgs),
    /// Open a shell in a sandbox.
    Shell(shell::ShellArgs),
    /// Copy files and directories into a sandbox or out of it.
    Cp(copy::CopyArgs),
    /// Show what ran in a sandbox, and what it printed.
    Logs(logs::LogsArgs),
    /// Watch what sandboxes use.
    Top(top::TopArgs),
    /// Print the URL of a port in a sandbox.
    Url(url::UrlArgs),
}

pub(crate) async fn run(args: SandboxArgs) -> Result<u8, Failure> {
    let json = args.connection.json;
    let server = args.connection.resolve()?;
    let done = |()| 0;
    match args.command {
        SandboxCommand::Create(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Ls(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Get(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Kill(args) => args.run(&server, json).await,
        SandboxCommand::Pause(args) => args.run(&server).await.map(done),
        SandboxCommand::Resume(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Fork(args) => args.run(&server, json).await,
        SandboxCommand::Resize(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Exec(args) => args.run(&server).await,
        SandboxCommand::Shell(args) => args.run(&server).await,
        SandboxCommand::Cp(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Logs(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Top(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Url(args) => args.run(&server, json).await.map(done),
    }
}
