//! `shoal sandbox run`: a new sandbox and one command in it, like `docker run`.

use clap::Args;

use super::create::{self, Options};
use super::exec::{self, How};
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
The sandbox lives on after the command until --timeout is over, unless --rm ends it.

Examples:
  shoal sandbox run --rm base -- python3 -c 'print(6 * 7)'
  shoal sandbox run -it base bash")]
pub(crate) struct RunArgs {
    /// Kill the sandbox when the command ends.
    #[arg(long)]
    rm: bool,
    /// Run the command in a terminal.
    #[arg(long, short)]
    tty: bool,
    /// Forward standard input; the default when it is not a terminal.
    #[arg(long, short)]
    interactive: bool,
    #[arg(long, short, hide = true)]
    detach: bool,
    #[arg(long, short, hide = true, value_name = "PORT")]
    publish: Vec<String>,
    #[arg(long, short, hide = true, value_name = "PATH")]
    volume: Vec<String>,
    #[command(flatten)]
    options: Options,
    /// The template.
    #[arg(value_name = "TEMPLATE")]
    template: String,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl RunArgs {
    pub(crate) async fn run(self, server: &Connection) -> Result<u8, Failure> {
        if let Some(refused) = self.without_meaning() {
            return Err(refused);
        }
        let id = create::id_of_new(server, &self.template, self.options).await?;
        eprintln!("sandbox {id}");
        let ended = exec::run(server, &id, &How::default(), &self.command, self.tty).await;
        if !self.rm {
            return ended;
        }
        match server.delete(&format!("/sandboxes/{}", encode(&id))).await {
            // Its time may be up already.
            Ok(()) => ended,
            Err(failure) if failure.kind() == Kind::NotFound => ended,
            Err(failure) => {
                eprintln!(
                    "shoal: sandbox {id} is still running: {}",
                    output::plain(&failure.to_string())
                );
                ended
            }
        }
    }

    /// Refuses options of `docker run` that do not apply, with an alternative.
    fn without_meaning(&self) -> Option<Failure> {
        let (what, hint) = if self.detach {
            (
                "-d: a sandbox always runs in the background",
                "`shoal sandbox create` starts one and prints its id; `shoal sandbox exec ID -- \
                 COMMAND` runs commands in it.",
            )
        } else if !self.publish.is_empty() {
            (
                "-p: ports do not need to be published",
                "`shoal sandbox url ID PORT` prints the URL of any port.",
            )
        } else if !self.volume.is_empty() {
            (
                "-v: directories of this machine are not mounted into sandboxes",
                "`shoal sandbox cp DIR ID:/PATH` copies one.",
            )
        } else if self.command.is_empty() {
            (
                "no command given",
                "`shoal sandbox create` creates a sandbox without one.",
            )
        } else {
            return None;
        };
        Some(Failure::usage(what).with_hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    fn refused(words: &[&str]) -> Option<String> {
        let line = Line::try_parse_from([&["run"], words].concat()).unwrap();
        line.args
            .without_meaning()
            .map(|failure| format!("{failure:?}"))
    }

    #[test]
    fn options_of_docker_without_a_meaning_say_what_to_use() {
        for (words, hint) in [
            (&["-d", "base", "true"][..], "shoal sandbox create"),
            (&["-p", "8080:80", "base", "true"], "shoal sandbox url"),
            (&["-v", "/a:/b", "base", "true"], "shoal sandbox cp"),
            (&["base"], "shoal sandbox create"),
        ] {
            assert!(refused(words).unwrap().contains(hint), "{words:?}");
        }
        assert_eq!(refused(&["--rm", "-it", "base", "ls", "-d"]), None);
    }
}
