//! A table that is refreshed on a terminal.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::output::{self, Table};
use crate::parse;

/// To the upper left, and nothing below.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

/// The shortest interval, even if a shorter one is requested.
const EVERY_MIN: Duration = Duration::from_millis(500);

/// How a table is shown.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// Print the table once. The default if the output is not a terminal.
    #[arg(long)]
    once: bool,
    /// How often it is printed anew.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = parse::duration)]
    every: Duration,
}

impl LiveArgs {
    /// Prints `table` once, or again and again until an interrupt.
    pub(crate) async fn show(
        &self,
        table: impl AsyncFn() -> Result<Table, Failure>,
    ) -> Result<(), Failure> {
        if self.once || !output::is_terminal() {
            return table().await?.print();
        }
        // Registered now, so that an interrupt during the first request counts too.
        let mut interrupted = signal(SignalKind::interrupt())?;
        loop {
            let text = table().await?.text();
            let mut out = io::stdout().lock();
            out.write_all(CLEAR)?;
            out.write_all(text.as_bytes())?;
            out.flush()?;
            drop(out);
            tokio::select! {
                () = tokio::time::sleep(self.every.max(EVERY_MIN)) => {}
                _ = interrupted.recv() => return Ok(()),
            }
        }
    }
}
