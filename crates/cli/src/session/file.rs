//! `shoal session file` and `shoal session sync`.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, Subcommand};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use shoal_protocol::native::{MoveSessionFile, SessionFile, SessionFileCount, SessionSync};

use super::events::{self, WatchArgs};
use super::path;
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{self, Table};

/// More than the largest file. Bounds the read of an endless input.
const LONGEST: u64 = (64 << 20) + 1;

/// How many files go at the same time.
const AT_ONCE: usize = 8;

#[derive(Debug, Args)]
pub(super) struct FileArgs {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// List files.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Write a file, or the files of a directory.
    Put(PutArgs),
    /// Read a file.
    Get(GetArgs),
    /// Print the paths of files that change.
    Watch(WatchArgs),
    /// Move a file, or a directory with its files.
    Mv(MoveArgs),
    /// Remove files, and directories with their files.
    Rm(RemoveArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The id of the session.
    id: String,
    /// A file, or a directory with everything in it [default: all].
    path: Option<String>,
}

#[derive(Debug, Args)]
struct PutArgs {
    /// The id of the session.
    id: String,
    /// Where it goes, below the home directory of the machine.
    path: String,
    /// A file, or a directory with everything in it [default: standard input].
    from: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct GetArgs {
    /// The id of the session.
    id: String,
    /// The file.
    path: String,
    /// Where it goes [default: standard output].
    to: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct MoveArgs {
    /// The id of the session.
    id: String,
    /// Where it is.
    from: String,
    /// Where it goes.
    to: String,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// The id of the session.
    id: String,
    /// The files or directories.
    #[arg(required = true)]
    paths: Vec<String>,
}

pub(super) async fn run(server: &Connection, args: FileArgs, json: bool) -> Result<(), Failure> {
    match args.command {
        Subcommands::Ls(args) => list(server, &args, json).await,
        Subcommands::Put(args) => put(server, args).await,
        Subcommands::Get(args) => get(server, args).await,
        Subcommands::Watch(args) => events::watch(server, &args, json).await,
        Subcommands::Mv(args) => {
            let (from, to) = (args.from, args.to);
            let moved = Some(MoveSessionFile { from, to });
            let path = format!("{}/files/move", path(&args.id));
            let answer = server.native(Method::POST, &path, moved.as_ref());
            answer.await.map(|_: SessionFileCount| ())
        }
        Subcommands::Rm(args) => {
            for file in &args.paths {
                server.native_delete(&of("files", &args.id, file)).await?;
            }
            Ok(())
        }
    }
}

/// `shoal session sync`.
pub(super) async fn sync(server: &Connection, id: &str, json: bool) -> Result<(), Failure> {
    let sync: SessionSync = server.native_get(&format!("{}/sync", path(id))).await?;
    if json {
        return output::json(&sync);
    }
    let machine = if sync.connected { "kept equal" } else { "none" };
    output::fields(&[
        ("state", output::plain(&sync.state)),
        ("machine", machine.to_owned()),
        ("behind", sync.behind.to_string()),
    ])?;
    for copy in &sync.conflicts {
        output::line(&format!("conflict: {}", output::plain(copy)))?;
    }
    for note in &sync.notes {
        output::line(&output::plain(note))?;
    }
    Ok(())
}

/// The path of a call about a file.
fn of(call: &str, id: &str, file: &str) -> String {
    format!("{}/{call}?path={}", path(id), encode(file))
}

async fn list(server: &Connection, args: &ListArgs, json: bool) -> Result<(), Failure> {
    let path = of("files", &args.id, args.path.as_deref().unwrap_or_default());
    let files: Vec<SessionFile> = server.native_get(&path).await?;
    if json {
        return output::json(&files);
    }
    let mut table = Table::new(&["path", "size", "changed"]);
    for file in files {
        let changed = output::ago(&file.modified_at);
        let name = output::plain(&file.path);
        table.row([name, output::bytes(file.size), changed]);
    }
    table.print()
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::other(format!("{}: {error}", path.display()))
}

async fn put(server: &Connection, args: PutArgs) -> Result<(), Failure> {
    let Some(from) = args.from else {
        let mut contents = Vec::new();
        let read = io::stdin().lock().take(LONGEST).read_to_end(&mut contents);
        read.map_err(|error| failed(Path::new("standard input"), &error))?;
        return write(server, &args.id, &args.path, contents.into(), None).await;
    };
    let files = files_of(&from, &args.path)?;
    let id = args.id.as_str();
    let writes = files.into_iter().map(async |(here, there)| {
        let read = || {
            let meta = std::fs::metadata(&here)?;
            let mut contents = Vec::new();
            std::fs::File::open(&here)?
                .take(LONGEST)
                .read_to_end(&mut contents)?;
            Ok((contents, meta.permissions().mode() & 0o100 != 0))
        };
        let (contents, executable) = read().map_err(|error| failed(&here, &error))?;
        write(server, id, &there, contents.into(), Some(executable)).await
    });
    let writes = stream::iter(writes).buffer_unordered(AT_ONCE);
    writes.try_collect().await
}

/// The regular files at or below a path, each with where it goes. Links are passed over.
fn files_of(from: &Path, to: &str) -> Result<Vec<(PathBuf, String)>, Failure> {
    let mut files = Vec::new();
    let mut rest = vec![(from.to_owned(), to.trim_end_matches('/').to_owned())];
    while let Some((here, there)) = rest.pop() {
        let kind = if files.is_empty() && here == from {
            std::fs::metadata(&here)
        } else {
            std::fs::symlink_metadata(&here)
        };
        let kind = kind.map_err(|error| failed(&here, &error))?;
        if kind.is_file() {
            files.push((here, there));
        } else if kind.is_dir() {
            for entry in std::fs::read_dir(&here).map_err(|error| failed(&here, &error))? {
                let entry = entry.map_err(|error| failed(&here, &error))?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else {
                    let message = format!("{}: the name is no UTF-8", entry.path().display());
                    return Err(Failure::other(message));
                };
                let there = match there.as_str() {
                    "" | "." => name.to_owned(),
                    there => format!("{there}/{name}"),
                };
                rest.push((entry.path(), there));
            }
        }
    }
    Ok(files)
}

async fn write(
    server: &Connection,
    id: &str,
    file: &str,
    contents: Bytes,
    executable: Option<bool>,
) -> Result<(), Failure> {
    let mut path = of("files/content", id, file);
    if let Some(executable) = executable {
        path.push_str(&format!("&executable={executable}"));
    }
    server.native_put_bytes(&path, contents).await
}

async fn get(server: &Connection, args: GetArgs) -> Result<(), Failure> {
    let path = of("files/content", &args.id, &args.path);
    let contents = server.native_get_bytes(&path).await?;
    match args.to {
        Some(to) => std::fs::write(&to, contents).map_err(|error| failed(&to, &error)),
        None => {
            let mut out = io::stdout().lock();
            let written = out.write_all(&contents).and_then(|()| out.flush());
            written.map_err(|error| failed(Path::new("standard output"), &error))
        }
    }
}
