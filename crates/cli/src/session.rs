//! `shoal session`.

mod events;
mod file;
mod memory;
mod secret;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::Method;
use shoal_protocol::native::{
    ChangeSession, NewSession, ResetSession, Session, SessionCommand, SessionMachine,
    SessionOutput, SessionReset,
};

use crate::calls::encode;
use crate::confirm::confirm;
use crate::connection::{Connection, ConnectionArgs};
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, Table};
use crate::parse;

/// The exit code of a command that was cancelled, as of one that an interrupt ended.
const CANCELLED: u8 = 130;

/// The commands of `shoal session`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SessionArgs {
    #[command(subcommand)]
    command: Subcommands,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Make a session. It gets a machine with its first command.
    Create(CreateArgs),
    /// List sessions.
    #[command(visible_alias = "list")]
    Ls,
    /// Show a session and its windows.
    Info(IdArgs),
    /// Run a command in a window, and print its output.
    Exec(ExecArgs),
    /// Cancel the command of a window.
    Cancel(WindowArgs),
    /// Keep the machine for a day after its last command, or for an hour again.
    Persist(SwitchArgs),
    /// Let requests to the preview start the machine, or not.
    WakeOnRequest(SwitchArgs),
    /// Print what happens, until the session is deleted or the server stops.
    Events(IdArgs),
    /// End the machine. The session stays.
    Reset(ResetArgs),
    /// Files: kept outside of the machine, and equal with it while it lives.
    File(file::FileArgs),
    /// Show how the files of a session and of its machine stand.
    Sync(IdArgs),
    /// Secrets: variables of the windows. Their values cannot be read back.
    Secret(secret::SecretArgs),
    /// Memories: notes that are kept outside of the machine.
    Memory(memory::MemoryArgs),
    /// Delete sessions with everything in them.
    Rm(RemoveArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Processors of its machine: 1 to 16.
    #[arg(long, value_name = "COUNT")]
    cpu: Option<u32>,
    /// Memory of its machine in GiB: 1 to 64.
    #[arg(long, value_name = "GIB")]
    memory: Option<u32>,
    /// Docker in its machine, if the server allows that.
    #[arg(long)]
    privileged: bool,
    /// The image of a container in which its commands run. Needs --privileged.
    #[arg(long, value_name = "IMAGE")]
    docker_image: Option<String>,
    /// The model of its GPUs: A10G, A100, T4, L4 or H100.
    #[arg(long, value_name = "MODEL")]
    gpu_type: Option<String>,
    /// The number of its GPUs: 1 to 8.
    #[arg(long, value_name = "COUNT")]
    gpu_count: Option<u32>,
    /// An external machine, which is reached over SSH, in place of a sandbox.
    #[arg(long, value_name = "USER@HOST:PORT", requires = "ssh_key", conflicts_with_all = ["cpu", "memory"])]
    ssh: Option<String>,
    /// The file with the private key of the external machine, without a passphrase.
    #[arg(long, value_name = "FILE", requires = "ssh")]
    ssh_key: Option<PathBuf>,
    /// Keep its machine for a day after its last command, instead of an hour.
    #[arg(long)]
    persist: bool,
    /// Let requests to its preview start its machine.
    #[arg(long)]
    wake_on_request: bool,
    /// A label.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::pair)]
    metadata: Vec<(String, String)>,
}

#[derive(Debug, Args)]
struct IdArgs {
    /// The id of the session.
    id: String,
}

#[derive(Debug, Args)]
struct ExecArgs {
    /// The id of the session.
    id: String,
    /// The window. It opens when it is not open; a command that runs in it is cancelled.
    #[arg(long, short, default_value = "main")]
    window: String,
    /// The command line. It may use all of bash: quote it.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct WindowArgs {
    /// The id of the session.
    id: String,
    /// The window.
    #[arg(default_value = "main")]
    window: String,
}

#[derive(Debug, Args)]
struct SwitchArgs {
    /// The id of the session.
    id: String,
    /// Whether to do so.
    #[arg(value_parser = ["on", "off"])]
    state: String,
}

#[derive(Debug, Args)]
struct ResetArgs {
    /// The id of the session.
    id: String,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// The ids of the sessions.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(crate) async fn run(args: SessionArgs) -> Result<u8, Failure> {
    let json = args.connection.json();
    let server = args.connection.resolve()?;
    match args.command {
        Subcommands::Create(args) => create(&server, args, json).await?,
        Subcommands::Ls => list(&server, json).await?,
        Subcommands::Info(args) => info(&server, &args.id, json).await?,
        Subcommands::Exec(args) => return exec(&server, args, json).await,
        Subcommands::Cancel(args) => cancel(&server, &args.id, &args.window).await?,
        Subcommands::Persist(args) => persist(&server, &args).await?,
        Subcommands::WakeOnRequest(args) => wake_on_request(&server, &args).await?,
        Subcommands::Events(args) => events::follow(&server, &args.id, json).await?,
        Subcommands::Reset(args) => reset(&server, &args).await?,
        Subcommands::File(args) => file::run(&server, args, json).await?,
        Subcommands::Sync(args) => file::sync(&server, &args.id, json).await?,
        Subcommands::Secret(args) => secret::run(&server, args, json).await?,
        Subcommands::Memory(args) => memory::run(&server, args, json).await?,
        Subcommands::Rm(args) => return remove(&server, args).await,
    }
    Ok(0)
}

fn path(id: &str) -> String {
    format!("/sessions/{}", encode(id))
}

async fn create(server: &Connection, args: CreateArgs, json: bool) -> Result<(), Failure> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path);
        text.map_err(|error| Failure::other(format!("cannot read {}: {error}", path.display())))
    };
    let key = args.ssh_key.map(read).transpose()?;
    let new = NewSession {
        metadata: args.metadata.into_iter().collect(),
        machine: SessionMachine {
            cpu_count: args.cpu,
            memory_gb: args.memory,
            privileged: args.privileged,
            docker_image: args.docker_image,
            gpu_type: args.gpu_type,
            gpu_count: args.gpu_count,
            ssh_connection: args.ssh,
            ssh_private_key: key,
        },
        persist: args.persist,
        wake_on_request: args.wake_on_request,
    };
    let made: Session = server.native(Method::POST, "/sessions", Some(&new)).await?;
    if json {
        return output::json(&made);
    }
    output::line(&made.id)
}

async fn list(server: &Connection, json: bool) -> Result<(), Failure> {
    let sessions: Vec<Session> = server.native_get("/sessions").await?;
    if json {
        return output::json(&sessions);
    }
    let mut table = Table::new(&["ID", "SANDBOX", "ENDS IN", "WINDOWS", "AGE", "LABELS"]);
    for session in sessions {
        let labels = session.metadata.iter();
        let labels: Vec<_> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        table.row([
            session.id,
            session.sandbox_id.unwrap_or_default(),
            session
                .ends_at
                .map(|at| output::until(&at))
                .unwrap_or_default(),
            session.windows.len().to_string(),
            output::ago(&session.created_at),
            output::plain(&labels.join(",")),
        ]);
    }
    table.print()
}

async fn info(server: &Connection, id: &str, json: bool) -> Result<(), Failure> {
    let session: Session = server.native_get(&path(id)).await?;
    if json {
        return output::json(&session);
    }
    let none = "none until the next command";
    let machine = match session.machine.ssh_connection {
        Some(address) => ("external machine", address),
        None => (
            "sandbox",
            session.sandbox_id.unwrap_or_else(|| none.to_owned()),
        ),
    };
    output::fields(&[
        ("id", session.id.clone()),
        machine,
        ("system", output::plain(&session.system.unwrap_or_default())),
        ("isolation", session.isolation.unwrap_or_default()),
        ("ends", session.ends_at.unwrap_or_default()),
        ("persist", session.persist.to_string()),
        ("preview", session.preview_url),
        ("wakes", session.wake_on_request.to_string()),
        ("created", session.created_at),
        ("last used", session.last_execution),
    ])?;
    let mut table = Table::new(&["WINDOW", "USED", "RUNS"]);
    for window in session.windows {
        table.row([
            window.name,
            output::ago(&window.active_at),
            output::plain(&window.running.unwrap_or_default()),
        ]);
    }
    table.print()
}

/// Runs a command; the exit code is the command's.
async fn exec(server: &Connection, args: ExecArgs, json: bool) -> Result<u8, Failure> {
    let window = args.window;
    let command = SessionCommand {
        command: args.command.join(" "),
        window: Some(window.clone()),
    };
    let mut end = None;
    let each = |event: SessionOutput| {
        if json {
            output::json(&event)?;
        }
        match event {
            SessionOutput::Output { data } if !json => {
                let mut out = std::io::stdout().lock();
                let written = out.write_all(data.as_bytes()).and_then(|()| out.flush());
                written.map_err(|error| Failure::other(format!("cannot write: {error}")))?;
            }
            SessionOutput::Notice { message } if !json => {
                eprintln!("shoal: {}", output::plain(&message));
            }
            SessionOutput::Output { .. } | SessionOutput::Notice { .. } => {}
            ended => end = Some(ended),
        }
        Ok(())
    };
    let run = format!("{}/exec", path(&args.id));
    listen(server.native_lines(&run, &command, each), async || {
        cancel(server, &args.id, &window).await
    })
    .await?;
    match end {
        Some(SessionOutput::Exit { code }) => Ok(u8::try_from(code).unwrap_or(1)),
        Some(SessionOutput::Cancelled) => {
            eprintln!("shoal: the command was cancelled");
            Ok(CANCELLED)
        }
        Some(SessionOutput::Lost { reason }) => Err(Failure::other(reason)),
        Some(SessionOutput::Output { .. } | SessionOutput::Notice { .. }) | None => Err(
            Failure::other("the server ended before the command did: it may still run"),
        ),
    }
}

/// Reads the events of a command. An interrupt cancels it, and its end follows.
async fn listen(
    lines: impl Future<Output = Result<(), Failure>>,
    cancel: impl AsyncFnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut lines = std::pin::pin!(lines);
    tokio::select! {
        read = &mut lines => read,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            cancel().await?;
            lines.await
        }
    }
}

async fn cancel(server: &Connection, id: &str, window: &str) -> Result<(), Failure> {
    let path = format!("{}/windows/{}/cancel", path(id), encode(window));
    server.native_post(&path).await
}

async fn persist(server: &Connection, args: &SwitchArgs) -> Result<(), Failure> {
    let change_to = ChangeSession {
        persist: Some(args.state == "on"),
        ..ChangeSession::default()
    };
    change(server, &args.id, &change_to).await
}

async fn wake_on_request(server: &Connection, args: &SwitchArgs) -> Result<(), Failure> {
    let change_to = ChangeSession {
        wake_on_request: Some(args.state == "on"),
        ..ChangeSession::default()
    };
    change(server, &args.id, &change_to).await
}

async fn change(server: &Connection, id: &str, change: &ChangeSession) -> Result<(), Failure> {
    let changed: Result<Session, Failure> =
        server.native(Method::PATCH, &path(id), Some(change)).await;
    changed.map(drop)
}

async fn reset(server: &Connection, args: &ResetArgs) -> Result<(), Failure> {
    let path = format!("{}/reset", path(&args.id));
    let ask = ResetSession::default();
    let question: SessionReset = server.native(Method::POST, &path, Some(&ask)).await?;
    if !args.yes {
        confirm(
            "End the machine, with its processes and what only it has?",
            "the machine runs on",
        )?;
    }
    let answer = ResetSession {
        token: question.token,
    };
    let done: SessionReset = server.native(Method::POST, &path, Some(&answer)).await?;
    if done.done {
        return Ok(());
    }
    Err(Failure::other("the server asks again: try again"))
}

async fn remove(server: &Connection, args: RemoveArgs) -> Result<u8, Failure> {
    let mut code = 0;
    for id in args.ids {
        match server.native_delete(&path(&id)).await {
            Ok(()) => output::line(&id)?,
            Err(failure) => {
                failure.tell();
                code = failure.code();
            }
        }
    }
    Ok(code)
}
