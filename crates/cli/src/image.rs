//! `shoal image`.

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use shoal_core::similar::nearest;
use shoal_protocol::native::{Image, ImageEvent, ImportImage, PullImage};

use crate::calls::encode;
use crate::connection::{Connection, ConnectionArgs};
use crate::failure::{EXIT_CODES, Failure, Kind};
use crate::output::{self, Table};
use crate::progress::Steps;

/// The maximum length of a password.
const PASSWORD_MAX: u64 = 64 << 10;

/// The displayed length of a digest, including `sha256:`.
const SHORT_DIGEST: usize = 19;

/// The commands of `shoal image`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ImageArgs {
    #[command(subcommand)]
    command: ImageCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    /// Pull an image from a registry to the server's machine.
    Pull(PullArgs),
    /// List images.
    #[command(visible_alias = "list")]
    Ls,
    /// Remove images that no template and no sandbox uses.
    Rm(RemoveArgs),
    /// Import an OCI layout or a `docker save` archive from the server's machine.
    Import(ImportArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal image pull python:3.13-slim
  shoal image pull mmdebstrap:bookworm     (made from Debian's packages, without a registry)
  echo $TOKEN | shoal image pull --username me --password-stdin ghcr.io/me/app:1")]
struct PullArgs {
    /// [registry/]repository[:tag][@digest], or mmdebstrap:<suite>.
    name: String,
    /// The account at the registry.
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    username: Option<String>,
    /// Read its password or token from standard input.
    #[arg(long)]
    password_stdin: bool,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// The names of the images.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// The archive or the directory.
    path: PathBuf,
    /// The name of the imported image.
    name: String,
}

pub(crate) async fn run(args: ImageArgs) -> Result<u8, Failure> {
    let json = args.connection.json();
    let server = args.connection.resolve()?;
    match args.command {
        ImageCommand::Pull(args) => pull(&server, args, json).await?,
        ImageCommand::Ls => list(&server, json).await?,
        ImageCommand::Rm(args) => return remove(&server, args).await,
        ImageCommand::Import(args) => import(&server, args, json).await?,
    }
    Ok(0)
}

async fn pull(server: &Connection, args: PullArgs, json: bool) -> Result<(), Failure> {
    let password = args.password_stdin.then(password).transpose()?;
    let asked = PullImage {
        name: args.name,
        username: args.username,
        password,
    };
    fetch(server, "/images/pull", &asked, json).await
}

/// Reads a password or a token from standard input.
pub(crate) fn password() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(PASSWORD_MAX)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("cannot read the password: {error}")))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

async fn import(server: &Connection, args: ImportArgs, json: bool) -> Result<(), Failure> {
    // The server on another machine knows its own files; one on this machine has these.
    let path = match args.path.canonicalize() {
        Ok(path) => path,
        Err(error) if server.origin.is_loopback() => {
            return Err(Failure::not_found(format!(
                "{}: {error}",
                args.path.display()
            )));
        }
        Err(_) => args.path,
    };
    let path = path.to_str().map(str::to_owned);
    let asked = ImportImage {
        path: path.ok_or_else(|| Failure::usage("the path is not UTF-8"))?,
        name: args.name,
    };
    fetch(server, "/images/import", &asked, json).await
}

/// Requests an image, shows the progress, and prints the image.
async fn fetch(
    server: &Connection,
    path: &str,
    asked: &impl Serialize,
    json: bool,
) -> Result<(), Failure> {
    let mut steps = Steps::new();
    let mut image: Option<Image> = None;
    let each = |event: ImageEvent| match event {
        ImageEvent::Progress { step, done, total } => {
            steps.report(&step, done, total);
            Ok(())
        }
        ImageEvent::Done { image: done } => {
            image = Some(done);
            Ok(())
        }
        ImageEvent::Error { code, message } => Err(refused(&code, message)),
    };
    let read = server.native_lines(path, asked, each).await;
    drop(steps);
    read?;
    let image = image.ok_or_else(|| {
        Failure::new(
            Kind::Unreachable,
            "the server ended before the image was there",
        )
    })?;
    if json {
        return output::json(&image);
    }
    output::line(&image.name)?;
    if output::is_terminal() {
        eprintln!(
            "{}, {} layers, {}",
            short(&image.digest),
            image.layers,
            output::bytes(image.size_bytes)
        );
    }
    Ok(())
}

fn refused(code: &str, message: String) -> Failure {
    let status = code.parse().ok();
    let status = status.and_then(|code: u16| http::StatusCode::from_u16(code).ok());
    Failure::of_status(
        status.unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR),
        message,
    )
}

fn short(digest: &str) -> &str {
    digest.get(..SHORT_DIGEST).unwrap_or(digest)
}

async fn list(server: &Connection, json: bool) -> Result<(), Failure> {
    let images: Vec<Image> = server.native_get("/images").await?;
    if json {
        return output::json(&images);
    }
    let mut table = Table::new(&["NAME", "DIGEST", "LAYERS", "SIZE", "AGE"]);
    for image in images {
        table.row([
            image.name,
            short(&image.digest).to_owned(),
            image.layers.to_string(),
            output::bytes(image.size_bytes),
            output::ago(&image.created_at),
        ]);
    }
    table.print()
}

async fn remove(server: &Connection, args: RemoveArgs) -> Result<u8, Failure> {
    let mut code = 0;
    for name in args.names {
        let path = format!("/images?name={}", encode(&name));
        match server.native_delete(&path).await {
            Ok(()) => output::line(&name)?,
            Err(failure) if failure.kind() == Kind::NotFound => {
                let known: Vec<Image> = server.native_get("/images").await.unwrap_or_default();
                let near = nearest(&name, known.iter().map(|image| image.name.as_str()));
                let failure = match near {
                    Some(near) => failure.with_hint(format!("Did you mean {near}?")),
                    None => failure,
                };
                failure.tell();
                code = failure.code();
            }
            Err(failure) => {
                failure.tell();
                code = failure.code();
            }
        }
    }
    Ok(code)
}
