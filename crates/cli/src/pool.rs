//! `shoal pool`.

use clap::{Args, Subcommand};
use http::Method;
use shoal_protocol::native::{Pool, PoolMember, RemovedMembers};

use crate::calls::encode;
use crate::connection::{Connection, ConnectionArgs};
use crate::failure::{EXIT_CODES, Failure};
use crate::live::LiveArgs;
use crate::output::{self, Table};

/// The commands of `shoal pool`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PoolArgs {
    #[command(subcommand)]
    command: PoolCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    /// List the pools of the catalogue, or the members of one.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Watch the pools.
    Top(TopArgs),
    /// Remove a member, or all members of a pool. New ones replace them.
    Rm(RemoveArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The template whose members to list.
    template: Option<String>,
}

#[derive(Debug, Args)]
struct TopArgs {
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// A member's id, or the name of a template.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) async fn run(args: PoolArgs) -> Result<u8, Failure> {
    let server = args.connection.resolve()?;
    let json = args.connection.json();
    match args.command {
        PoolCommand::Ls(ListArgs { template: None }) => list(&server, json).await?,
        PoolCommand::Ls(ListArgs {
            template: Some(template),
        }) => members(&server, &template, json).await?,
        PoolCommand::Top(top) => top.run(&server, json).await?,
        PoolCommand::Rm(args) => return remove(&server, args).await,
    }
    Ok(0)
}

async fn remove(server: &Connection, args: RemoveArgs) -> Result<u8, Failure> {
    let mut code = 0;
    for name in args.names {
        let path = format!("/pool/{}", encode(&name));
        let removed: Result<RemovedMembers, Failure> =
            server.native(Method::DELETE, &path, None::<&()>).await;
        match removed {
            Ok(removed) => output::line(&format!("{name}   {} removed", removed.removed))?,
            Err(failure) => {
                failure.tell();
                code = failure.code();
            }
        }
    }
    Ok(code)
}

async fn pools(server: &Connection) -> Result<Vec<Pool>, Failure> {
    server.native_get("/pool").await
}

async fn list(server: &Connection, json: bool) -> Result<(), Failure> {
    let pools = pools(server).await?;
    if json {
        return output::json(&pools);
    }
    table(pools).print()
}

fn table(pools: Vec<Pool>) -> Table {
    let mut table = Table::new(&[
        "TEMPLATE",
        "READY",
        "SIZE",
        "PARKED",
        "STARTING",
        "CLAIMED",
        "MISSES",
        "LAST ERROR",
    ]);
    for pool in pools {
        table.row([
            pool.template,
            pool.ready.to_string(),
            pool.size.to_string(),
            pool.parked.to_string(),
            pool.starting.to_string(),
            pool.claimed.to_string(),
            pool.misses.to_string(),
            pool.last_error
                .map(|error| error.message)
                .unwrap_or_default(),
        ]);
    }
    table
}

async fn members(server: &Connection, template: &str, json: bool) -> Result<(), Failure> {
    let path = format!("/pool/sandbox/{}", encode(template));
    let members: Vec<PoolMember> = server.native_get(&path).await?;
    if json {
        return output::json(&members);
    }
    let mut table = Table::new(&["ID", "STATUS", "AGE", "READY FOR"]);
    for member in members {
        table.row([
            member.name,
            member.status,
            output::ago(&member.created_at),
            member
                .ready_at
                .map(|at| output::ago(&at))
                .unwrap_or_default(),
        ]);
    }
    table.print()
}

impl TopArgs {
    async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        if json {
            return list(server, json).await;
        }
        self.live
            .show(async || Ok(table(pools(server).await?)))
            .await
    }
}
