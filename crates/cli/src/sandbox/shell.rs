//! `shoal sandbox shell`.

use clap::Args;
use shoal_protocol::client::Command;

use super::exec::{How, why_broken};
use super::session;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};

/// The best shell that the image has.
const BEST_SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash -l; fi; exec sh -l";

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    how: How,
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
}

impl ShellArgs {
    pub(crate) async fn run(self, server: &Connection) -> Result<u8, Failure> {
        let envd = server.inside(&self.id, self.how.user.as_deref()).await?;
        let command = self.how.of(Command::new("/bin/sh", ["-c", BEST_SHELL]));
        match session::run(&envd, command).await {
            Err(failure) if matches!(failure.kind(), Kind::Unreachable | Kind::Server) => {
                Err(why_broken(server, &self.id, failure).await)
            }
            ended => ended,
        }
    }
}
