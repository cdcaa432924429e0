//! `shoal sandbox cp`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use shoal_core::id::SandboxId;
use shoal_protocol::client::EnvdClient;

use super::transfer::{Tally, Transfer};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
A directory is copied with all that is in it. Links are followed to files and left out where they
lead to directories. In the sandbox, a path that does not begin with / begins at the user's home.

Examples:
  shoal sandbox cp ./app ID:/srv/
  shoal sandbox cp ID:results.csv .
  tar c src | shoal sandbox cp - ID:/tmp/src.tar
  shoal sandbox cp ID:/etc/os-release -")]
pub(crate) struct CopyArgs {
    /// Source: a local path, ID:PATH, or - for standard input.
    #[arg(value_name = "FROM")]
    from: String,
    /// Target: a local path, ID:PATH, or - for standard output.
    #[arg(value_name = "TO")]
    to: String,
    /// The user in the sandbox [default: the template's].
    #[arg(long, short, value_name = "NAME")]
    user: Option<String>,
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Standard input or output.
    Stream,
    /// On this machine.
    Here(PathBuf),
    /// In a sandbox.
    Inside { id: String, path: String },
}

impl Place {
    /// `ID:PATH` is in a sandbox; `./a:b` is local.
    fn parse(text: &str) -> Self {
        if text == "-" {
            return Self::Stream;
        }
        match text.split_once(':') {
            Some((id, path)) if SandboxId::from_wire(id).is_ok() && !id.contains('/') => {
                Self::Inside {
                    id: id.to_owned(),
                    path: path.to_owned(),
                }
            }
            _ => Self::Here(text.into()),
        }
    }
}

impl CopyArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let (from, to) = (Place::parse(&self.from), Place::parse(&self.to));
        let user = self.user.as_deref();
        let tally = match (&from, &to) {
            (Place::Inside { .. }, Place::Inside { .. }) => {
                return Err(Failure::usage("one end of a copy must be a local path")
                    .with_hint("Copy to this machine first, then into the other sandbox."));
            }
            (Place::Inside { id, path }, Place::Here(to)) => {
                download(&server.inside(id, user).await?, path, to).await?
            }
            (Place::Inside { id, path }, Place::Stream) => {
                let transfer = Transfer::new(server.inside(id, user).await?);
                // Standard output is the file's content.
                return transfer.stdout_from(path).await;
            }
            (Place::Here(from), Place::Inside { id, path }) => {
                upload(&server.inside(id, user).await?, from, path).await?
            }
            (Place::Stream, Place::Inside { id, path }) => {
                let transfer = Transfer::new(server.inside(id, user).await?);
                if path.is_empty() || path.ends_with('/') {
                    return Err(Failure::usage("standard input needs a target file name"));
                }
                transfer.stdin_to(path).await?
            }
            _ => {
                return Err(Failure::usage("neither end of the copy is in a sandbox")
                    .with_hint("Use ID:PATH for a path in a sandbox."));
            }
        };
        if json {
            return output::json(&json!({"files": tally.files, "bytes": tally.bytes}));
        }
        if output::is_terminal() {
            let (files, bytes) = (tally.files, output::bytes(tally.bytes));
            eprintln!(
                "{files} {}, {bytes}",
                if files == 1 { "file" } else { "files" }
            );
        }
        Ok(())
    }
}

async fn upload(envd: &EnvdClient, from: &Path, to: &str) -> Result<Tally, Failure> {
    let meta = std::fs::metadata(from).map_err(|error| local(from, &error))?;
    let name = name_of(from)?;
    let transfer = Transfer::new(envd.clone());
    let into = to.is_empty() || to.ends_with('/') || transfer.is_directory(to).await?;
    let to = if into { join(to, &name) } else { to.to_owned() };
    if meta.is_dir() {
        transfer.upload_tree(from, &to).await
    } else if meta.is_file() {
        transfer.upload_file(from, &to).await
    } else {
        Err(Failure::usage(format!(
            "{} is neither a file nor a directory",
            from.display()
        )))
    }
}

async fn download(envd: &EnvdClient, from: &str, to: &Path) -> Result<Tally, Failure> {
    let transfer = Transfer::new(envd.clone());
    let path = if from.is_empty() { "." } else { from };
    let name = path.trim_end_matches('/').rsplit('/').next();
    let name = name.filter(|name| !matches!(*name, "" | "." | ".." | "~"));
    let slash = to.as_os_str().as_encoded_bytes().ends_with(b"/");
    let target = match name {
        Some(name) if to.is_dir() || slash => to.join(name),
        _ => to.to_owned(),
    };
    if transfer.is_directory_for_sure(path).await? {
        transfer.download_tree(path, &target).await
    } else {
        transfer.download_file(path, &target).await
    }
}

fn name_of(path: &Path) -> Result<String, Failure> {
    let whole = path.canonicalize().map_err(|error| local(path, &error))?;
    // A symlink keeps its own name.
    let named = path.file_name().or_else(|| whole.file_name());
    let name = named.and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| Failure::usage(format!("the name of {} is not UTF-8", path.display())))
}

/// A path in a directory of the sandbox.
pub(super) fn join(directory: &str, name: &str) -> String {
    match directory {
        "" => name.to_owned(),
        directory => format!("{}/{name}", directory.trim_end_matches('/')),
    }
}

/// A local file that cannot be used.
pub(super) fn local(path: &Path, error: &io::Error) -> Failure {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => Failure::not_found(message),
        _ => Failure::other(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(id: &str, path: &str) -> Place {
        Place::Inside {
            id: id.to_owned(),
            path: path.to_owned(),
        }
    }

    #[test]
    fn an_id_before_a_colon_is_a_sandbox() {
        assert_eq!(Place::parse("-"), Place::Stream);
        assert_eq!(Place::parse("iabc:/x"), inside("iabc", "/x"));
        assert_eq!(
            Place::parse("iabc-6532622b:x:y"),
            inside("iabc-6532622b", "x:y")
        );
        assert_eq!(Place::parse("iabc:"), inside("iabc", ""));
        for here in ["x", "./a:b", "/a:b", "A:b", "../x", ""] {
            assert_eq!(Place::parse(here), Place::Here(here.into()), "{here}");
        }
    }

    #[test]
    fn paths_are_joined_with_one_slash() {
        assert_eq!(join("", "x"), "x");
        assert_eq!(join("a", "x"), "a/x");
        assert_eq!(join("/a/", "x"), "/a/x");
        assert_eq!(join("/", "x"), "/x");
    }
}
