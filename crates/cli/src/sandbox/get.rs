//! `shoal sandbox get`.

use clap::Args;
use serde_json::Value;
use shoal_core::clock::Timestamp;

use super::change::rules;
use super::list::{Listed, labels};
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::find::NAME_LABEL;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
}

impl GetArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let answer: Value = server.sandbox(&self.id).await?;
        if json {
            return output::json(&answer);
        }
        let listed: Listed = serde_json::from_value(answer.clone())
            .map_err(|error| Failure::new(Kind::Server, format!("unexpected answer: {error}")))?;
        let text = |pointer: &str| {
            let found = answer.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let [allowed, denied] = rules(&answer);
        let mut ends = format!("{} (in {}", listed.end_at, output::until(&listed.end_at));
        if let (Some(start), Some(end)) = (
            Timestamp::parse_rfc3339(&listed.started_at),
            Timestamp::parse_rfc3339(&listed.end_at),
        ) {
            let given = output::span(end.since(start));
            ends.push_str(&format!(
                ", {given} after its start; `shoal sandbox timeout ID TIME` changes it"
            ));
        }
        ends.push(')');
        output::fields(&[
            ("id", listed.id.clone()),
            (
                "name",
                listed.metadata.get(NAME_LABEL).cloned().unwrap_or_default(),
            ),
            ("template", listed.template().to_owned()),
            ("state", listed.state.clone()),
            (
                "started",
                format!(
                    "{} ({} ago)",
                    listed.started_at,
                    output::ago(&listed.started_at)
                ),
            ),
            ("ends", ends),
            ("on timeout", text("/lifecycle/onTimeout")),
            ("processors", listed.cpu_count.to_string()),
            ("memory", format!("{} MiB", listed.memory_mb)),
            ("disk", format!("{} MiB", listed.disk_size_mb)),
            ("runtime", text("/shoal/runtime")),
            ("isolation", text("/shoal/isolation")),
            ("origin", text("/shoal/origin")),
            allowed,
            denied,
            ("labels", labels(&listed.metadata)),
        ])
    }
}
