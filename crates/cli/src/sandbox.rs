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

/// The commands of `shoal sandbox`.
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
    /// Create a sandbox and print its id.
    #[command(visible_alias = "spawn")]
    Create(Box<create::CreateArgs>),
    /// List sandboxes, the newest first.
    #[command(visible_aliases = ["list", "ps"])]
    Ls(list::ListArgs),
    /// Show the details of a sandbox.
    #[command(visible_aliases = ["info", "inspect", "describe"])]
    Get(get::GetArgs),
    /// Kill sandboxes.
    #[command(visible_aliases = ["rm", "delete"])]
    Kill(kill::KillArgs),
    /// Pause a sandbox: save its memory and files, and stop it.
    Pause(rest::PauseArgs),
    /// Resume a paused sandbox.
    Resume(rest::ResumeArgs),
    /// Start copies of a running sandbox and print their ids.
    Fork(rest::ForkArgs),
    /// Change the limits of a running sandbox.
    Resize(rest::ResizeArgs),
    /// Change how long a sandbox lives.
    #[command(visible_alias = "set-timeout")]
    Timeout(change::TimeoutArgs),
    /// Show or replace the network rules of a sandbox.
    Network(change::NetworkArgs),
    /// Create a sandbox and run one command in it.
    Run(Box<run::RunArgs>),
    /// Replace a sandbox's tokens; connections and signed URLs of the old ones end.
    RotateToken(rotate_token::RotateTokenArgs),
    /// Run a command in a sandbox and exit with its code.
    Exec(exec::ExecArgs),
    /// Open a shell in a sandbox.
    #[command(visible_aliases = ["connect", "attach"])]
    Shell(shell::ShellArgs),
    /// Copy files and directories into or out of a sandbox.
    Cp(copy::CopyArgs),
    /// Show the log of a sandbox.
    Logs(logs::LogsArgs),
    /// Watch the resource use of sandboxes.
    #[command(visible_aliases = ["metrics", "stats"])]
    Top(top::TopArgs),
    /// Print the URL of a port in a sandbox.
    Url(url::UrlArgs),
}

/// Whether `shoal sandbox` has this command.
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
