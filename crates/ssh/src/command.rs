//! Commands on an external machine.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use shoal_core::BoxFuture;
use shoal_core::ports::external::ExternalError;
use shoal_core::ports::inside::{
    CommandControl, CommandExit, CommandOutput, InsideError, RunningCommand, SandboxCommand,
    TerminalSize,
};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::dial::Checker;
use crate::link::{ANSWER, Link, disconnect};

/// How long a program may take to end after a hangup, before it is killed.
const HANGUP: Duration = Duration::from_millis(500);

/// The stream number of standard error.
const STDERR: u32 = 1;

/// Runs a command.
///
/// # Errors
/// When the machine cannot be reached, or refuses the command.
pub(crate) async fn run(
    link: &Link,
    command: SandboxCommand,
) -> Result<RunningCommand, InsideError> {
    let line = line(&command);
    let lost = |_: russh::Error| InsideError::from(link.lost());
    let (mut channel, own) = match command.terminal {
        // An unread terminal stops its whole connection.
        Some(_) => {
            let handle = link.dial().await?;
            let channel = handle.channel_open_session().await.map_err(lost)?;
            (channel, Some(handle))
        }
        None => (link.main().await?.channel().await.map_err(lost)?, None),
    };
    if let Some(size) = command.terminal {
        let (cols, rows) = (u32::from(size.cols), u32::from(size.rows));
        let term = command.env.get("TERM").map_or("xterm", String::as_str);
        let asked = channel.request_pty(true, term, cols, rows, 0, 0, &[]).await;
        asked.map_err(lost)?;
        granted(link, &mut channel, "it gives no terminal").await?;
    }
    channel.exec(true, line).await.map_err(lost)?;
    granted(link, &mut channel, "it runs no commands").await?;
    if !command.stdin {
        channel.eof().await.map_err(lost)?;
    }
    let (read, write) = channel.split();
    let (ended, end) = watch::channel(false);
    let (killed, given_up) = watch::channel(false);
    let control = Arc::new(Control {
        write,
        own,
        has_terminal: command.terminal.is_some(),
        end,
        killed,
    });
    if let Some(limit) = command.timeout {
        let control = control.clone();
        tokio::spawn(async move {
            let mut end = control.end.clone();
            if timeout(limit, end.wait_for(|ended| *ended)).await.is_err() {
                // It may have ended by itself.
                let _ = control.kill().await;
            }
        });
    }
    let output = Output {
        read,
        exit: None,
        lost: link.lost(),
        ended,
        given_up,
        // The connection stays open while its output is read.
        _control: control.clone(),
    };
    Ok(RunningCommand {
        output: stream::unfold(Some(output), next).boxed(),
        control,
    })
}

/// Waits until a request about a channel is granted.
async fn granted(
    link: &Link,
    channel: &mut Channel<Msg>,
    refusal: &str,
) -> Result<(), InsideError> {
    let answered = async {
        loop {
            match channel.wait().await {
                Some(ChannelMsg::Success) => return Ok(()),
                Some(ChannelMsg::Failure) => {
                    return Err(InsideError::Invalid(format!(
                        "{}: {refusal}",
                        link.address()
                    )));
                }
                Some(ChannelMsg::Close) | None => return Err(link.lost().into()),
                Some(_) => {}
            }
        }
    };
    let answered = timeout(ANSWER, answered).await;
    answered.unwrap_or_else(|_| Err(link.lost().into()))
}

/// The command line for the account's shell, in quoted words that every shell reads in the same way.
fn line(command: &SandboxCommand) -> String {
    let mut line = String::new();
    // Writing to a string does not fail.
    if let Some(cwd) = &command.cwd {
        let _ = write!(line, "cd {} && ", quoted(cwd));
    }
    line.push_str("exec env");
    for (name, value) in &command.env {
        let _ = write!(line, " {}", quoted(&format!("{name}={value}")));
    }
    let _ = write!(line, " {}", quoted(&command.program));
    for arg in &command.args {
        let _ = write!(line, " {}", quoted(arg));
    }
    line
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The output of a command.
struct Output {
    read: ChannelReadHalf,
    exit: Option<CommandExit>,
    /// The error when the connection ends before the command.
    lost: ExternalError,
    ended: watch::Sender<bool>,
    /// Whether the machine does not report the end of a killed command.
    given_up: watch::Receiver<bool>,
    _control: Arc<Control>,
}

async fn next(
    output: Option<Output>,
) -> Option<(Result<CommandOutput, InsideError>, Option<Output>)> {
    let mut output = output?;
    loop {
        let message = tokio::select! {
            message = output.read.wait() => message,
            Ok(_) = output.given_up.wait_for(|given_up| *given_up) => {
                let error = Some("signal: killed".to_owned());
                output.exit.get_or_insert(CommandExit { code: -1, error });
                None
            }
        };
        match message {
            Some(ChannelMsg::Data { data }) => {
                return Some((Ok(CommandOutput::Stdout(data)), Some(output)));
            }
            Some(ChannelMsg::ExtendedData { data, ext: STDERR }) => {
                return Some((Ok(CommandOutput::Stderr(data)), Some(output)));
            }
            Some(ChannelMsg::ExitStatus { exit_status }) => {
                output.exit = Some(CommandExit {
                    code: i32::try_from(exit_status).unwrap_or(-1),
                    error: None,
                });
            }
            Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                output.exit = Some(CommandExit {
                    code: -1,
                    error: Some(format!("signal: {signal_name:?}")),
                });
            }
            Some(ChannelMsg::Close) | None => {
                // A command without a waiting caller has ended too.
                let _ = output.ended.send(true);
                let end = match output.exit.take() {
                    Some(exit) => Ok(CommandOutput::Exit(exit)),
                    None => Err(output.lost.clone().into()),
                };
                return Some((end, None));
            }
            Some(_) => {}
        }
    }
}

/// Controls a command.
struct Control {
    write: ChannelWriteHalf<Msg>,
    /// The connection of a terminal.
    own: Option<Handle<Checker>>,
    has_terminal: bool,
    end: watch::Receiver<bool>,
    killed: watch::Sender<bool>,
}

impl Control {
    /// Fails when the command has ended.
    fn check(&self) -> Result<(), InsideError> {
        if *self.end.borrow() {
            return Err(gone(()));
        }
        Ok(())
    }

    /// Waits a moment for the end.
    async fn ends(&self) -> bool {
        let mut end = self.end.clone();
        let ended = timeout(HANGUP, end.wait_for(|ended| *ended)).await;
        ended.is_ok()
    }
}

fn gone<T>(_: T) -> InsideError {
    InsideError::NotFound("the process has ended".to_owned())
}

impl CommandControl for Control {
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            self.check()?;
            self.write.data_bytes(bytes).await.map_err(gone)
        })
    }

    fn close_input(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            self.check()?;
            if self.has_terminal {
                return Err(InsideError::Invalid("it has a terminal".to_owned()));
            }
            self.write.eof().await.map_err(gone)
        })
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            self.check()?;
            if !self.has_terminal {
                return Err(InsideError::Invalid("it has no terminal".to_owned()));
            }
            let (cols, rows) = (u32::from(size.cols), u32::from(size.rows));
            let changed = self.write.window_change(cols, rows, 0, 0).await;
            changed.map_err(gone)
        })
    }

    /// A shell gets the chance to hang up its jobs. A server that sends no signals hangs the terminal up when its channel
    /// closes.
    fn kill(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            self.check()?;
            if self.has_terminal {
                self.write.signal(Sig::HUP).await.map_err(gone)?;
                self.ends().await;
            }
            // The channel may be closed by now.
            let _ = self.write.signal(Sig::KILL).await;
            if !self.ends().await {
                self.killed.send_replace(true);
            }
            let _ = self.write.close().await;
            if let Some(own) = &self.own {
                disconnect(own).await;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_a_program_as_they_are() {
        let command = SandboxCommand::new("/bin/sh", ["-c", "echo 'a' $HOME"])
            .with_env("A", "b c")
            .with_cwd("/tmp/x y");
        let said = r"cd '/tmp/x y' && exec env 'A=b c' '/bin/sh' '-c' 'echo '\''a'\'' $HOME'";
        assert_eq!(line(&command), said);
    }
}
