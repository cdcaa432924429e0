//! `shoal session memory`.

use std::io::{self, Read, Write};

use clap::{Args, Subcommand};
use http::Method;
use shoal_protocol::native::{PutMemory, SessionMemory, SessionMemoryEntry};

use super::path;
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{self, Table};

/// More than the longest text. Bounds the read of an endless input.
const LONGEST: u64 = 128 << 10;

#[derive(Debug, Args)]
pub(super) struct MemoryArgs {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Write a memory.
    Set(SetArgs),
    /// Print a memory.
    Get(NameArgs),
    /// List memories.
    #[command(visible_alias = "list")]
    Ls(IdArgs),
    /// Delete memories.
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
    /// The name of the memory.
    name: String,
}

#[derive(Debug, Args)]
struct SetArgs {
    /// The id of the session.
    id: String,
    /// The name of the memory.
    name: String,
    /// The text [default: standard input].
    text: Option<String>,
}

#[derive(Debug, Args)]
struct NamesArgs {
    /// The id of the session.
    id: String,
    /// The names of the memories.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub(super) async fn run(server: &Connection, args: MemoryArgs, json: bool) -> Result<(), Failure> {
    match args.command {
        Subcommands::Set(args) => set(server, args, json).await,
        Subcommands::Get(args) => get(server, &args, json).await,
        Subcommands::Ls(args) => list(server, &args.id, json).await,
        Subcommands::Rm(args) => remove(server, &args).await,
    }
}

fn of(id: &str, name: &str) -> String {
    format!("{}/memories/{}", path(id), encode(name))
}

async fn set(server: &Connection, args: SetArgs, json: bool) -> Result<(), Failure> {
    let text = match args.text {
        Some(text) => text,
        None => input()?,
    };
    let (path, body) = (of(&args.id, &args.name), PutMemory { text });
    let put: SessionMemory = server.native(Method::PUT, &path, Some(&body)).await?;
    if json {
        return output::json(&put);
    }
    Ok(())
}

fn input() -> Result<String, Failure> {
    let mut text = String::new();
    let read = io::stdin().lock().take(LONGEST).read_to_string(&mut text);
    read.map_err(|error| Failure::other(format!("cannot read the text: {error}")))?;
    Ok(text)
}

async fn get(server: &Connection, args: &NameArgs, json: bool) -> Result<(), Failure> {
    let memory: SessionMemory = server.native_get(&of(&args.id, &args.name)).await?;
    if json {
        return output::json(&memory);
    }
    let mut out = io::stdout().lock();
    let written = out.write_all(memory.text.as_bytes());
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::other(format!("cannot write: {error}")))
}

async fn list(server: &Connection, id: &str, json: bool) -> Result<(), Failure> {
    let path = format!("{}/memories", path(id));
    let memories: Vec<SessionMemoryEntry> = server.native_get(&path).await?;
    if json {
        return output::json(&memories);
    }
    let mut table = Table::new(&["NAME", "SIZE", "WRITTEN"]);
    for memory in memories {
        let written = output::ago(&memory.updated_at);
        table.row([memory.name, output::bytes(memory.bytes), written]);
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
