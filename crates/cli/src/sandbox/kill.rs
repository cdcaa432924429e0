//! `shoal sandbox kill`.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;
use serde_json::json;

use super::list;
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The sandboxes.
    #[arg(
        value_name = "ID",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    ids: Vec<String>,
    /// Every sandbox of the team.
    #[arg(long)]
    all: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

impl KillArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<u8, Failure> {
        let ids = if self.all {
            let all = list::all(server, "limit=100").await?;
            let id = |sandbox: &serde_json::Value| Some(sandbox["sandboxID"].as_str()?.to_owned());
            all.iter().filter_map(id).collect()
        } else {
            self.ids
        };
        if self.all && !self.yes && !ids.is_empty() {
            confirm(ids.len())?;
        }
        let mut killed = Vec::new();
        let mut code = 0;
        for id in ids {
            match server.delete(&format!("/sandboxes/{}", encode(&id))).await {
                Ok(()) => {
                    if !json {
                        output::line(&id)?;
                    }
                    killed.push(id);
                }
                // It ended meanwhile, which is what was wanted.
                Err(failure) if failure.kind() == Kind::NotFound && self.all => {}
                Err(failure) if failure.kind() == Kind::NotFound => {
                    let failure = server.no_sandbox(&id).await;
                    failure.tell();
                    code = failure.code();
                }
                Err(failure) if failure.kind() == Kind::Unreachable => return Err(failure),
                Err(failure) => {
                    failure.tell();
                    code = failure.code();
                }
            }
        }
        if json {
            output::json(&json!({"killed": killed}))?;
        }
        Ok(code)
    }
}

fn confirm(count: usize) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("nobody is there to be asked: say --yes"));
    }
    eprint!("End {count} sandboxes for good? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::other(format!("cannot read the answer: {error}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Kind::Interrupted, "nothing was ended")),
    }
}
