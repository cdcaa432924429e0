//! `shoal snapshot`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use shoal_core::similar::nearest;
use shoal_protocol::native::{ExportSnapshot, ExportedSnapshot, ImportSnapshot, ImportedSnapshot};

use crate::calls::encode;
use crate::connection::{Connection, ConnectionArgs};
use crate::failure::{EXIT_CODES, Failure, Kind};
use crate::output::{self, Table};
use crate::parse;

/// The commands of `shoal snapshot`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    command: SnapshotCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    /// List snapshots, the newest first.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Take a snapshot of a running sandbox and print its name.
    Create(CreateArgs),
    /// Remove snapshots. Sandboxes that started from them keep running.
    Rm(RemoveArgs),
    /// Export a snapshot to a file, for import on another machine.
    Export(ExportArgs),
    /// Import an exported snapshot, if this machine can run it.
    Import(ImportArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only snapshots of this sandbox.
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shoal snapshot create iabc --name work
  shoal sandbox create --template work")]
struct CreateArgs {
    /// The sandbox.
    sandbox: String,
    /// The snapshot's name: NAME or NAME:TAG. An existing name gets a new version.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Save files only; sandboxes boot from them.
    #[arg(long)]
    files_only: bool,
    /// Kill the sandbox after the snapshot.
    #[arg(long)]
    stop: bool,
    /// Remove the snapshot after this time: 30m, 30h, 30d [default: never].
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    ttl: Option<Duration>,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// Names or ids. A name without a tag removes all its tags.
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<String>,
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// The snapshot, by name or id.
    snapshot: String,
    /// The file on the server's machine, which must not exist.
    file: PathBuf,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// The file on the server's machine.
    file: PathBuf,
    /// The name of the imported snapshot [default: its exported name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Import an export of another installation without verifying it.
    ///
    /// An export is sealed with the key of its installation, or with `snapshots.export_key`. Without
    /// that key, the author and integrity of the file are unknown: the runtime restores its memory,
    /// and its programs run with everything that sandboxes started from it receive. Use this only
    /// for files whose author you trust.
    #[arg(long)]
    trust: bool,
}

pub(crate) async fn run(args: SnapshotArgs) -> Result<u8, Failure> {
    let json = args.connection.json();
    let server = args.connection.resolve()?;
    match args.command {
        SnapshotCommand::Ls(args) => list(&server, args, json).await?,
        SnapshotCommand::Create(args) => create(&server, args, json).await?,
        SnapshotCommand::Rm(args) => return remove(&server, args).await,
        SnapshotCommand::Export(args) => export(&server, args, json).await?,
        SnapshotCommand::Import(args) => import(&server, args, json).await?,
    }
    Ok(0)
}

/// All snapshots that match `query`, over all pages.
async fn all(server: &Connection, query: &str) -> Result<Vec<Value>, Failure> {
    let mut found: Vec<Value> = Vec::new();
    let mut next = String::new();
    loop {
        let path = format!("/snapshots?limit=100{query}&nextToken={next}");
        let (headers, page): (_, Vec<Value>) = server.page(&path).await?;
        found.extend(page);
        match headers
            .get("x-next-token")
            .and_then(|token| token.to_str().ok())
        {
            Some(token) => encode(token).clone_into(&mut next),
            None => return Ok(found),
        }
    }
}

async fn list(server: &Connection, args: ListArgs, json: bool) -> Result<(), Failure> {
    let query = match &args.sandbox {
        Some(sandbox) => format!("&sandboxID={}", encode(sandbox)),
        None => String::new(),
    };
    let found = all(server, &query).await?;
    if json {
        return output::json(&found);
    }
    let mut table = Table::new(&["SNAPSHOT", "KEEPS", "SIZE", "FROZEN", "OF", "AGE", "ENDS"]);
    for one in &found {
        let text = |pointer: &str| {
            let found = one.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let bytes = |pointer: &str| one.pointer(pointer).and_then(Value::as_u64);
        let size = bytes("/shoal/memoryBytes").zip(bytes("/shoal/fileBytes"));
        let frozen = one.pointer("/shoal/freeze").and_then(Value::as_f64);
        let ends = text("/shoal/expiresAt");
        table.row([
            text("/snapshotID"),
            text("/shoal/contents"),
            size.map(|(memory, files)| format!("{} MiB", (memory + files).div_ceil(1 << 20)))
                .unwrap_or_default(),
            frozen
                .map(|frozen| format!("{frozen:.0} ms"))
                .unwrap_or_default(),
            text("/shoal/source"),
            output::ago(&text("/shoal/createdAt")),
            if ends.is_empty() {
                ends
            } else {
                output::until(&ends)
            },
        ]);
    }
    table.print()
}

async fn create(server: &Connection, args: CreateArgs, json: bool) -> Result<(), Failure> {
    let mut body = json!({});
    if let Some(name) = &args.name {
        body["name"] = json!(name);
    }
    if args.files_only {
        body["memory"] = json!(false);
    }
    let mut headers = Vec::new();
    if args.stop {
        headers.push(("x-e2b-kruise-snapshot-keep-running", "false".to_owned()));
    }
    if let Some(ttl) = args.ttl {
        headers.push(("x-e2b-kruise-snapshot-ttl", format!("{}s", ttl.as_secs())));
    }
    let id = server.sandbox_id(&args.sandbox).await?;
    let path = format!("/sandboxes/{}/snapshots", encode(&id));
    let taken: Result<Value, Failure> = server
        .call_with(Method::POST, &path, Some(body), &headers)
        .await;
    let taken = match taken {
        Err(failure) if failure.kind() == Kind::NotFound => {
            return Err(server.no_sandbox(&id).await);
        }
        taken => taken?,
    };
    if json {
        return output::json(&taken);
    }
    output::line(taken["snapshotID"].as_str().unwrap_or_default())
}

async fn remove(server: &Connection, args: RemoveArgs) -> Result<u8, Failure> {
    let mut code = 0;
    for name in args.snapshots {
        match server
            .delete(&format!("/templates/{}", encode(&name)))
            .await
        {
            Ok(()) => output::line(&name)?,
            Err(failure) => {
                let failure = with_near(server, &name, failure).await;
                failure.tell();
                code = failure.code();
            }
        }
    }
    Ok(code)
}

/// Adds a similar name when a snapshot does not exist.
async fn with_near(server: &Connection, name: &str, failure: Failure) -> Failure {
    if failure.kind() != Kind::NotFound {
        return failure;
    }
    let known = all(server, "").await.unwrap_or_default();
    let names = known.iter().filter_map(|one| one["snapshotID"].as_str());
    match nearest(name, names) {
        Some(near) => failure.with_hint(format!("Did you mean {near}?")),
        None => failure.with_hint("`shoal snapshot ls` lists the existing ones."),
    }
}

async fn export(server: &Connection, args: ExportArgs, json: bool) -> Result<(), Failure> {
    let asked = ExportSnapshot {
        snapshot: args.snapshot.clone(),
        path: absolute(&args.file)?,
    };
    let made: Result<ExportedSnapshot, Failure> = server
        .native(Method::POST, "/snapshots/export", Some(&asked))
        .await;
    let made = match made {
        Err(failure) => return Err(with_near(server, &args.snapshot, failure).await),
        Ok(made) => made,
    };
    if json {
        return output::json(&made);
    }
    output::line(&made.path)?;
    if output::is_terminal() {
        eprintln!("{} MiB", made.bytes.div_ceil(1 << 20));
    }
    Ok(())
}

async fn import(server: &Connection, args: ImportArgs, json: bool) -> Result<(), Failure> {
    let asked = ImportSnapshot {
        path: absolute(&args.file)?,
        name: args.name,
        trust: args.trust,
    };
    let taken: ImportedSnapshot = server
        .native(Method::POST, "/snapshots/import", Some(&asked))
        .await?;
    if json {
        return output::json(&taken);
    }
    output::line(&taken.snapshot_id)
}

/// An absolute path for the server.
fn absolute(file: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(file)?;
    let path = path.to_str().map(str::to_owned);
    path.ok_or_else(|| Failure::usage("the path is not UTF-8"))
}
