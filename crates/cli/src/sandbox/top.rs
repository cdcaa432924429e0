//! `shoal sandbox top`.

use std::collections::BTreeMap;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::list::{self, Listed};
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::live::LiveArgs;
use crate::output::{self, Table};

/// How many sandboxes may be asked for at once.
const IDS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Only these.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metric {
    cpu_used_pct: f64,
    mem_used: u64,
    mem_total: u64,
    disk_used: u64,
    disk_total: u64,
}

impl TopArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        if json {
            return self.print_json(server).await;
        }
        self.live.show(async || self.table(server).await).await
    }

    async fn sandboxes(&self, server: &Connection) -> Result<Vec<(Value, Listed)>, Failure> {
        let all = list::all(server, "limit=100").await?;
        let strange = |error| Failure::new(Kind::Server, format!("a strange answer: {error}"));
        let mut sandboxes = Vec::new();
        for value in all {
            let listed: Listed = serde_json::from_value(value.clone()).map_err(strange)?;
            if self.ids.is_empty() || self.ids.contains(&listed.id) {
                sandboxes.push((value, listed));
            }
        }
        let found = |id: &&String| sandboxes.iter().any(|(_, listed)| listed.id == **id);
        match self.ids.iter().find(|id| !found(id)) {
            Some(missing) => Err(server.no_sandbox(missing).await),
            None => Ok(sandboxes),
        }
    }

    async fn metrics(
        &self,
        server: &Connection,
        sandboxes: &[(Value, Listed)],
    ) -> Result<BTreeMap<String, Value>, Failure> {
        #[derive(Deserialize)]
        struct Latest {
            sandboxes: BTreeMap<String, Value>,
        }
        let mut all = BTreeMap::new();
        for some in sandboxes.chunks(IDS) {
            let ids: Vec<&str> = some.iter().map(|(_, listed)| listed.id.as_str()).collect();
            let path = format!("/sandboxes/metrics?sandbox_ids={}", encode(&ids.join(",")));
            let latest: Latest = server.get(&path).await?;
            all.extend(latest.sandboxes);
        }
        Ok(all)
    }

    async fn table(&self, server: &Connection) -> Result<Table, Failure> {
        let sandboxes = self.sandboxes(server).await?;
        let mut metrics = self.metrics(server, &sandboxes).await?;
        let mut table = Table::new(&["ID", "TEMPLATE", "CPU", "MEMORY", "DISK", "AGE", "ENDS IN"]);
        for (_, sandbox) in &sandboxes {
            let metric = metrics.remove(&sandbox.id);
            let metric = metric.and_then(|value| serde_json::from_value::<Metric>(value).ok());
            let of = |used, total| format!("{} / {}", output::bytes(used), output::bytes(total));
            // One that is seconds old has no sample yet.
            let (cpu, memory, disk) = match metric {
                Some(m) => (
                    format!("{:.1} %", m.cpu_used_pct),
                    of(m.mem_used, m.mem_total),
                    of(m.disk_used, m.disk_total),
                ),
                None => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
            };
            table.row([
                sandbox.id.clone(),
                sandbox.template().to_owned(),
                cpu,
                memory,
                disk,
                output::ago(&sandbox.started_at),
                output::until(&sandbox.end_at),
            ]);
        }
        Ok(table)
    }

    async fn print_json(&self, server: &Connection) -> Result<(), Failure> {
        let sandboxes = self.sandboxes(server).await?;
        let metrics = self.metrics(server, &sandboxes).await?;
        let both: Vec<Value> = sandboxes
            .into_iter()
            .map(|(value, listed)| json!({"sandbox": value, "metrics": metrics.get(&listed.id)}))
            .collect();
        output::json(&both)
    }
}
