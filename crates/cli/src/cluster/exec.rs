//! `shoal cluster exec`.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use futures_util::SinkExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess, TerminalSize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};

use super::api::{Cluster, failure, one};
use super::sandbox::Sandbox;
use crate::failure::{Failure, Kind};
use crate::sandbox::interruptions::Interruptions;
use crate::{stdin, terminal};

/// How much is read at once.
const CHUNK: usize = 32 << 10;

#[derive(Debug, Args)]
#[command(after_help = "\
Standard input is passed on when it is no terminal; in a loop that reads a list, say --no-stdin.

Examples:
  shoal cluster exec NAME -- uname -a
  shoal cluster exec --tty NAME -- sh")]
pub(super) struct ExecArgs {
    /// Run the command in a terminal.
    #[arg(long, short)]
    tty: bool,
    /// Do not read standard input.
    #[arg(long, conflicts_with = "tty")]
    no_stdin: bool,
    /// The container [default: the first].
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
    /// The sandbox.
    #[arg(value_name = "NAME")]
    name: String,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ExecArgs {
    pub(super) async fn run(self, cluster: &Cluster) -> Result<u8, Failure> {
        let sandbox = cluster.sandbox(&self.name).await?;
        let container = match self.container {
            Some(container) => Some(container),
            None => first_container(cluster, &sandbox).await?,
        };
        let feeds = self.tty || !(self.no_stdin || io::stdin().is_terminal());
        let mut params = AttachParams::default()
            .stdin(feeds)
            .stdout(true)
            .stderr(!self.tty)
            .tty(self.tty);
        if let Some(container) = container {
            params = params.container(container);
        }
        let attached = cluster
            .pods()
            .exec(&sandbox.pod, &self.command, &params)
            .await;
        let attached = attached.map_err(failure)?;
        let raw =
            match self.tty {
                true => Some(terminal::RawMode::enter().map_err(|error| {
                    Failure::other(format!("cannot use this terminal: {error}"))
                })?),
                false => None,
            };
        let mut heard = self.tty.then(Interruptions::hear);
        let interrupted = async {
            match &mut heard {
                Some(heard) => heard.next().await,
                // Without a terminal of its own, a signal ends this program at once.
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = follow(attached) => ended,
            _ = interrupted => Err(Failure::new(Kind::Interrupted, "terminated")),
        };
        drop(raw);
        ended
    }
}

/// The first container of the sandbox's pod.
pub(super) async fn first_container(
    cluster: &Cluster,
    sandbox: &Sandbox,
) -> Result<Option<String>, Failure> {
    let pod = one(cluster.pods().get_opt(&sandbox.pod).await)?;
    let Some(pod) = pod else {
        let (name, state) = (&sandbox.name, &sandbox.state);
        let failure = Failure::new(
            Kind::NotNow,
            format!("sandbox {name} has no pod: it is {state}"),
        );
        return Err(match sandbox.why.as_str() {
            "" => failure,
            why => failure.with_details(vec![why.to_owned()]),
        });
    };
    let first = pod.spec.and_then(|spec| spec.containers.into_iter().next());
    Ok(first.map(|container| container.name))
}

/// Passes the streams on until the command ends. Its exit code.
async fn follow(mut attached: AttachedProcess) -> Result<u8, Failure> {
    let status = attached.take_status();
    let mut inputs = tokio::task::JoinSet::new();
    if let Some(mut to) = attached.stdin() {
        inputs.spawn(async move {
            let mut input = stdin::read();
            while let Some(Ok(bytes)) = input.recv().await {
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            // The command sees the end of its input.
            let _ = to.shutdown().await;
        });
    }
    if let Some(mut sizes) = attached.terminal_size() {
        let mut changes = signal(SignalKind::window_change())?;
        inputs.spawn(async move {
            loop {
                let (width, height) = terminal::size();
                if sizes.send(TerminalSize { width, height }).await.is_err() {
                    return;
                }
                changes.recv().await;
            }
        });
    }
    let (stdout, stderr) = (attached.stdout(), attached.stderr());
    let shown = tokio::try_join!(show(stdout, io::stdout()), show(stderr, io::stderr()));
    shown?;
    let broke = || Failure::new(Kind::Unreachable, "the connection to the sandbox broke");
    let ended = match status {
        Some(status) => status.await,
        None => None,
    };
    code(&ended.ok_or_else(broke)?)
}

/// Copies a stream of the command.
async fn show(from: Option<impl AsyncRead + Unpin>, mut to: impl Write) -> Result<(), Failure> {
    let Some(mut from) = from else {
        return Ok(());
    };
    let mut buffer = vec![0; CHUNK];
    loop {
        let broke =
            |error| Failure::new(Kind::Unreachable, format!("the output broke off: {error}"));
        match from.read(&mut buffer).await.map_err(broke)? {
            0 => return Ok(()),
            read => to.write_all(&buffer[..read])?,
        }
        to.flush()?;
    }
}

/// The exit code of a command, from the node's status of it.
fn code(ended: &Status) -> Result<u8, Failure> {
    if ended.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let message = ended.message.clone().unwrap_or_default();
    let causes = ended
        .details
        .as_ref()
        .and_then(|details| details.causes.as_ref());
    let exit = causes
        .into_iter()
        .flatten()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let number = exit.and_then(|cause| cause.message.as_deref()?.parse::<u8>().ok());
    match number {
        Some(number) => Ok(number),
        // The messages of runtimes about a program that is missing or may not be run.
        None if message.contains("exec failed") || message.contains("not found") => {
            Err(Failure::new(Kind::NotStarted, message))
        }
        None => Err(Failure::other(message)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ended(status: Value) -> Result<u8, Kind> {
        code(&serde_json::from_value(status).unwrap()).map_err(|failure| failure.kind())
    }

    #[test]
    fn the_exit_code_is_the_commands() {
        assert_eq!(ended(json!({"status": "Success"})), Ok(0));
        let failed = json!({
            "status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated",
            "details": {"causes": [{"reason": "ExitCode", "message": "42"}]},
        });
        assert_eq!(ended(failed), Ok(42));
        let absent =
            json!({"status": "Failure", "message": "OCI runtime exec failed: no such file"});
        assert_eq!(ended(absent), Err(Kind::NotStarted));
        let broken = json!({"status": "Failure", "message": "the node is gone"});
        assert_eq!(ended(broken), Err(Kind::Other));
    }
}
