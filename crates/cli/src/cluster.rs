//! `shoal cluster`: the sandboxes of a Kubernetes cluster, with the rights of the user's kubeconfig.
//!
//! No server of ours is asked: commands and logs go through the API server to the pods.

mod api;
mod claim;
mod exec;
mod get;
mod list;
mod logs;
mod sandbox;

use clap::{Args, Subcommand, ValueEnum};

use self::api::Cluster;
use crate::failure::{EXIT_CODES, Failure};

/// The commands of `shoal cluster`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
    /// The context of the kubeconfig [default: the current one].
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// The namespace [default: that of the context].
    #[arg(long, short, global = true, value_name = "NAME")]
    namespace: Option<String>,
    /// The API, where both have an object of the name.
    #[arg(long, global = true, value_enum)]
    api: Option<Family>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// The APIs that have sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    /// agents.x-k8s.io, of the Kubernetes community.
    #[value(name = "agents.x-k8s.io", alias = "x-k8s")]
    Community,
    /// agents.kruise.io, of OpenKruise.
    #[value(name = "agents.kruise.io", alias = "kruise")]
    Kruise,
}

impl Family {
    /// The group, as kubectl has it.
    fn group(self) -> &'static str {
        match self {
            Self::Community => "agents.x-k8s.io",
            Self::Kruise => "agents.kruise.io",
        }
    }
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// List sandboxes.
    #[command(visible_alias = "list")]
    Ls(list::ListArgs),
    /// Show a sandbox.
    Get(get::GetArgs),
    /// Claim a sandbox of a pool, and wait until it is ready; prints its name.
    Claim(claim::ClaimArgs),
    /// Run a command in a sandbox.
    Exec(exec::ExecArgs),
    /// Print the log of a sandbox.
    Logs(logs::LogsArgs),
}

pub(crate) async fn run(args: ClusterArgs) -> Result<u8, Failure> {
    let (context, namespace) = (args.context.as_deref(), args.namespace.as_deref());
    let cluster = Cluster::connect(context, namespace, args.api).await?;
    match args.command {
        ClusterCommand::Ls(list) => list.run(&cluster, args.json).await?,
        ClusterCommand::Get(get) => get.run(&cluster, args.json).await?,
        ClusterCommand::Claim(claim) => claim.run(&cluster, args.json).await?,
        ClusterCommand::Exec(exec) => return exec.run(&cluster).await,
        ClusterCommand::Logs(logs) => logs.run(&cluster).await?,
    }
    Ok(0)
}
