//! `shoal sandbox kill`.

use clap::Args;
use serde_json::json;

use super::list;
use crate::calls::encode;
use crate::confirm::confirm;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::{output, parse};

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The sandboxes, by id or name.
    #[arg(
        value_name = "ID",
        required_unless_present_any = ["all", "label"],
        conflicts_with_all = ["all", "label"]
    )]
    ids: Vec<String>,
    /// All sandboxes of the team.
    #[arg(long, short)]
    all: bool,
    /// All sandboxes with this label; repeatable.
    #[arg(long, short, visible_alias = "meta", value_name = "NAME=VALUE", value_parser = parse::pair)]
    label: Vec<(String, String)>,
    /// Do not ask for confirmation.
    #[arg(long, short, visible_short_alias = 'f', visible_alias = "force")]
    yes: bool,
}

impl KillArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<u8, Failure> {
        let some = self.all || !self.label.is_empty();
        let ids = if some {
            let query = format!("limit=100{}", list::with_labels(&self.label));
            let all = list::all(server, &query).await?;
            let id = |sandbox: &serde_json::Value| Some(sandbox["sandboxID"].as_str()?.to_owned());
            all.iter().filter_map(id).collect()
        } else {
            self.ids
        };
        if some && !self.yes && !ids.is_empty() {
            let count = ids.len();
            let what = if count == 1 { "sandbox" } else { "sandboxes" };
            confirm(&format!("Kill {count} {what}?"), "nothing was killed")?;
        }
        let mut killed = Vec::new();
        let mut code = 0;
        for said in ids {
            let id = match server.sandbox_id(&said).await {
                Ok(id) => id,
                Err(failure) if failure.kind() == Kind::Unreachable => return Err(failure),
                Err(failure) => {
                    failure.tell();
                    code = failure.code();
                    continue;
                }
            };
            match server.delete(&format!("/sandboxes/{}", encode(&id))).await {
                Ok(()) => {
                    if !json {
                        output::line(&id)?;
                    }
                    killed.push(id);
                }
                // It ended meanwhile.
                Err(failure) if failure.kind() == Kind::NotFound && some => {}
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
