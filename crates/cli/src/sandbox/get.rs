//! `shoal sandbox get`.

use clap::Args;
use serde_json::Value;

use super::list::{Listed, labels};
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
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
            .map_err(|error| Failure::new(Kind::Server, format!("a strange answer: {error}")))?;
        let text = |pointer: &str| {
            let found = answer.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let denied = answer.pointer("/network/denyOut").and_then(Value::as_array);
        let denied: Vec<&str> = denied
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        output::fields(&[
            ("id", listed.id.clone()),
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
            (
                "ends",
                format!("{} (in {})", listed.end_at, output::until(&listed.end_at)),
            ),
            ("on timeout", text("/lifecycle/onTimeout")),
            ("processors", listed.cpu_count.to_string()),
            ("memory", format!("{} MiB", listed.memory_mb)),
            ("disk", format!("{} MiB", listed.disk_size_mb)),
            ("runtime", text("/shoal/runtime")),
            ("isolation", text("/shoal/isolation")),
            ("origin", text("/shoal/origin")),
            ("denied egress", denied.join(" ")),
            ("labels", labels(&listed.metadata)),
        ])
    }
}
