//! `shoal session secret`.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use clap::{Args, Subcommand};
use http::Method;
use shoal_protocol::native::{SessionSecret, SetSecret};

use super::path;
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::output::{self, Table};
use crate::terminal::{INTERRUPT, WithoutEcho};

/// More than the longest value. Bounds the read of an endless input.
const LONGEST: u64 = 64 << 10;

#[derive(Debug, Args)]
pub(super) struct SecretArgs {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Set the value of a secret. It is read from standard input, or asked for without an echo.
    Set(NameArgs),
    /// Make secrets variables of all windows, until the machine ends.
    Activate(NamesArgs),
    /// Take secrets from all windows.
    Deactivate(NamesArgs),
    /// List secrets. Their values are never shown.
    #[command(visible_alias = "list")]
    Ls(IdArgs),
    /// Delete secrets.
    Rm(NamesArgs),
}

#[derive(Debug, Args)]
struct IdArgs {
    /// The id of the session.
    id: String,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The id of the session.
    id: String,
    /// The name of the secret, and of its variable.
    name: String,
}

#[derive(Debug, Args)]
struct NamesArgs {
    /// The id of the session.
    id: String,
    /// The names of the secrets.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub(super) async fn run(server: &Connection, args: SecretArgs, json: bool) -> Result<(), Failure> {
    match args.command {
        Subcommands::Set(args) => set(server, &args, json).await,
        Subcommands::Activate(args) => turn(server, &args, "activate", json).await,
        Subcommands::Deactivate(args) => turn(server, &args, "deactivate", json).await,
        Subcommands::Ls(args) => list(server, &args.id, json).await,
        Subcommands::Rm(args) => remove(server, &args).await,
    }
}

fn of(id: &str, name: &str) -> String {
    format!("{}/secrets/{}", path(id), encode(name))
}

async fn set(server: &Connection, args: &NameArgs, json: bool) -> Result<(), Failure> {
    let value = value(&args.name)?;
    let body = SetSecret { value };
    let path = of(&args.id, &args.name);
    let set: SessionSecret = server.native(Method::PUT, &path, Some(&body)).await?;
    if json {
        return output::json(&set);
    }
    Ok(())
}

/// The value: a line from the terminal, or all of the input without the line end at its end.
fn value(name: &str) -> Result<String, Failure> {
    let input = io::stdin();
    let mut value = Vec::new();
    let read = if input.is_terminal() {
        let _hidden = WithoutEcho::enter()?;
        eprint!("Value of {name}: ");
        io::stderr().flush()?;
        // A read of a terminal returns a line.
        let read = input.lock().fill_buf().map(|line| value.extend(line));
        eprintln!();
        read
    } else {
        let read = input.lock().take(LONGEST).read_to_end(&mut value);
        read.map(drop)
    };
    read.map_err(|error| Failure::other(format!("cannot read the value: {error}")))?;
    if input.is_terminal() && value.ends_with(&[INTERRUPT]) {
        return Err(Failure::new(Kind::Interrupted, "the secret was not set"));
    }
    let text = String::from_utf8(value);
    let text = text.map_err(|_| Failure::usage("the value is not text in UTF-8"))?;
    Ok(without_line_end(text))
}

fn without_line_end(mut value: String) -> String {
    if value.ends_with('\n') {
        value.pop();
        if value.ends_with('\r') {
            value.pop();
        }
    }
    value
}

async fn turn(server: &Connection, args: &NamesArgs, how: &str, json: bool) -> Result<(), Failure> {
    for name in &args.names {
        let path = format!("{}/{how}", of(&args.id, name));
        let turned: SessionSecret = server.native(Method::POST, &path, None::<&()>).await?;
        if json {
            output::json(&turned)?;
        }
    }
    Ok(())
}

async fn list(server: &Connection, id: &str, json: bool) -> Result<(), Failure> {
    let secrets: Vec<SessionSecret> = server.native_get(&format!("{}/secrets", path(id))).await?;
    if json {
        return output::json(&secrets);
    }
    let mut table = Table::new(&["NAME", "ACTIVE", "SET"]);
    for secret in secrets {
        let active = if secret.active { "yes" } else { "no" };
        let set = output::ago(&secret.set_at);
        table.row([secret.name, active.to_owned(), set]);
    }
    table.print()
}

async fn remove(server: &Connection, args: &NamesArgs) -> Result<(), Failure> {
    for name in &args.names {
        server.native_delete(&of(&args.id, name)).await?;
        output::line(name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_no_part_of_the_value() {
        for (input, value) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a")] {
            assert_eq!(without_line_end(input.to_owned()), value);
        }
    }
}
