//! `shoal key`.

use clap::{Args, Subcommand};
use http::Method;
use shoal_protocol::native::{Key, MintedKey, NewKey};

use crate::calls::encode;
use crate::connection::{Connection, ConnectionArgs};
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, Table};
use crate::team::LimitsArgs;

/// The commands of `shoal key`.
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
    /// Create a key and print it. It is shown only once.
    Create(CreateArgs),
    /// List keys.
    #[command(visible_alias = "list")]
    Ls,
    /// Remove keys. They stop working at once.
    Rm(RemoveArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// A name for the key.
    name: String,
    /// The key's team, created if it does not exist [default: yours].
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// Allow managing keys, images and templates.
    #[arg(long)]
    admin: bool,
    /// The limits of its team.
    #[command(flatten)]
    limits: LimitsArgs,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// The ids or names of the keys, as shown by `ls`.
    #[arg(required = true, value_name = "ID|NAME")]
    keys: Vec<String>,
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
    // First, so that the key's first sandboxes are within them.
    if let Some(team) = &new.team {
        args.limits.set(server, team).await?;
    }
    let own_team = new.team.is_none();
    let made: MintedKey = server.native(Method::POST, "/keys", Some(&new)).await?;
    let limited = if own_team {
        args.limits.set(server, &made.key.team).await
    } else {
        Ok(())
    };
    if json {
        output::json(&made)?;
        return limited;
    }
    output::line(&made.secret)?;
    limited?;
    if output::is_terminal() {
        let team = &made.key.team;
        eprintln!("The key is shown only once. It belongs to the team {team}.");
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
    let known: Vec<Key> = server.native_get("/keys").await?;
    for said in args.keys {
        let id = match id_of(&known, &said) {
            Ok(id) => id,
            Err(failure) => {
                failure.tell();
                code = failure.code();
                continue;
            }
        };
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

/// The id of a key by id or name. An ambiguous name is an error.
fn id_of(known: &[Key], said: &str) -> Result<String, Failure> {
    let called: Vec<&Key> = known.iter().filter(|key| key.name == said).collect();
    match called.as_slice() {
        _ if known.iter().any(|key| key.id == said) => Ok(said.to_owned()),
        [] => Ok(said.to_owned()),
        [key] => Ok(key.id.clone()),
        several => {
            let ids: Vec<&str> = several.iter().map(|key| key.id.as_str()).collect();
            let ids = ids.join(", ");
            Err(Failure::usage(format!(
                "{} keys have the name {said:?}: use the id of one ({ids})",
                several.len()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_meant_by_its_id_or_by_a_name_of_its_own() {
        let key = |id: &str, name: &str| Key {
            id: id.to_owned(),
            name: name.to_owned(),
            team: "t".to_owned(),
            admin: false,
            mask: String::new(),
            created_at: String::new(),
            own: false,
        };
        let known = [
            key("1", "ci"),
            key("2", "twice"),
            key("3", "twice"),
            key("4", "1"),
        ];
        let meant = |said| id_of(&known, said).map_err(|failure| failure.code());
        assert_eq!(meant("ci"), Ok("1".to_owned()));
        assert_eq!(meant("1"), Ok("1".to_owned()), "an id comes before a name");
        assert_eq!(meant("unknown"), Ok("unknown".to_owned()));
        assert!(meant("twice").is_err());
    }
}
