//! `shoal sandbox`.

mod change;
mod copy;
mod create;
mod exec;
mod get;
pub(crate) mod interruptions;
mod kill;
mod list;
mod logs;
mod rest;
mod rotate_token;
mod run;
mod session;
mod shell;
mod top;
mod transfer;
mod url;

use clap::{Args, Subcommand};

use crate::connection::ConnectionArgs;
use crate::failure::{EXIT_CODES, Failure};
pub(crate) use list::all as all_sandboxes;

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
    #[command(visible_alias = "spawn")]
    Create(Box<create::CreateArgs>),
    /// List sandboxes, the newest first.
    #[command(visible_aliases = ["list", "ps"])]
    Ls(list::ListArgs),
    /// Show all that is known of a sandbox.
    #[command(visible_aliases = ["info", "inspect", "describe"])]
    Get(get::GetArgs),
    /// End sandboxes for good.
    #[command(visible_aliases = ["rm", "delete"])]
    Kill(kill::KillArgs),
    /// Save a sandbox, memory and all, and stop it.
    Pause(rest::PauseArgs),
    /// Let a paused sandbox go on.
    Resume(rest::ResumeArgs),
    /// Start others that go on from where a sandbox is, and print their ids.
    Fork(rest::ForkArgs),
    /// Give a sandbox other limits while it runs.
    Resize(rest::ResizeArgs),
    /// Change how long a sandbox lives.
    #[command(visible_alias = "set-timeout")]
    Timeout(change::TimeoutArgs),
    /// Show or replace what a sandbox reaches.
    Network(change::NetworkArgs),
    /// Make a sandbox and run one command in it.
    Run(Box<run::RunArgs>),
    /// Replace a sandbox's tokens: what was opened or signed with the old ones ends.
    RotateToken(rotate_token::RotateTokenArgs),
    /// Run a command in a sandbox, and exit as it does.
    Exec(exec::ExecArgs),
    /// Open a shell in a sandbox.
    #[command(visible_aliases = ["connect", "attach"])]
    Shell(shell::ShellArgs),
    /// Copy files and directories into a sandbox or out of it.
    Cp(copy::CopyArgs),
    /// Show what ran in a sandbox, and what it printed.
    Logs(logs::LogsArgs),
    /// Watch what sandboxes use.
    #[command(visible_aliases = ["metrics", "stats"])]
    Top(top::TopArgs),
    /// Print the URL of a port in a sandbox.
    Url(url::UrlArgs),
}

/// Whether `shoal sandbox` has such a command.
pub(crate) fn has(name: &str) -> bool {
    let command = SandboxCommand::augment_subcommands(clap::Command::new("sandbox"));
    command.find_subcommand(name).is_some()
}

/// The names of all commands of `shoal sandbox`, aliases included.
pub(crate) fn names() -> Vec<String> {
    let command = SandboxCommand::augment_subcommands(clap::Command::new("sandbox"));
    let of = |command: &clap::Command| {
        let own = std::iter::once(command.get_name().to_owned());
        own.chain(command.get_all_aliases().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    command.get_subcommands().flat_map(of).collect()
}

pub(crate) async fn run(args: SandboxArgs) -> Result<u8, Failure> {
    let json = args.connection.json();
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
        SandboxCommand::Timeout(args) => args.run(&server).await.map(done),
        SandboxCommand::Network(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Run(args) => args.run(&server).await,
        SandboxCommand::RotateToken(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Exec(args) => args.run(&server).await,
        SandboxCommand::Shell(args) => args.run(&server).await,
        SandboxCommand::Cp(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Logs(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Top(args) => args.run(&server, json).await.map(done),
        SandboxCommand::Url(args) => args.run(&server, json).await.map(done),
    }
}
