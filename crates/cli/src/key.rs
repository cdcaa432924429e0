//! `shoal key`.

use clap::{Args, Subcommand};
use http::Method;
use shoal_protocol::native::{Key, MintedKey, NewKey};

use crate::calls::encode;
use crate::connection::{Connection, ConnectionArgs};
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, Table};

/// What to do with API keys.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make a key and print it: this once.
    Create(CreateArgs),
    /// List keys.
    #[command(visible_alias = "list")]
    Ls,
    /// Remove keys: they open nothing from then on.
    Rm(RemoveArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// What you call it.
    name: String,
    /// The team it speaks for, made when there is none [default: yours].
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// It may make keys, images and templates.
    #[arg(long)]
    admin: bool,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// The ids of the keys, as `ls` shows them.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(crate) async fn run(args: KeyArgs) -> Result<u8, Failure> {
    let json = args.connection.json();
    let server = args.connection.resolve()?;
    match args.command {
        KeyCommand::Create(args) => create(&server, args, json).await?,
        KeyCommand::Ls => list(&server, json).await?,
        KeyCommand::Rm(args) => return remove(&server, args).await,
    }
    Ok(0)
}

async fn create(server: &Connection, args: CreateArgs, json: bool) -> Result<(), Failure> {
    let new = NewKey {
        name: args.name,
        team: args.team,
        admin: args.admin,
    };
    let made: MintedKey = server.native(Method::POST, "/keys", Some(&new)).await?;
    if json {
        return output::json(&made);
    }
    output::line(&made.secret)?;
    if output::is_terminal() {
        let team = &made.key.team;
        eprintln!("This is the only time that it is shown. It speaks for the team {team}.");
    }
    Ok(())
}

async fn list(server: &Connection, json: bool) -> Result<(), Failure> {
    let keys: Vec<Key> = server.native_get("/keys").await?;
    if json {
        return output::json(&keys);
    }
    let mut table = Table::new(&["ID", "NAME", "TEAM", "KEY", "ADMIN", "AGE"]);
    for key in keys {
        let admin = if key.admin { "yes" } else { "no" };
        let name = if key.own {
            format!("{} (yours)", key.name)
        } else {
            key.name
        };
        let age = output::ago(&key.created_at);
        table.row([key.id, name, key.team, key.mask, admin.to_owned(), age]);
    }
    table.print()
}

async fn remove(server: &Connection, args: RemoveArgs) -> Result<u8, Failure> {
    let mut code = 0;
    for id in args.ids {
        match server
            .native_delete(&format!("/keys/{}", encode(&id)))
            .await
        {
            Ok(()) => output::line(&id)?,
            Err(failure) => {
                failure.tell();
                code = failure.code();
            }
        }
    }
    Ok(code)
}
