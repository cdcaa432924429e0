//! `shoal sandbox top`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use super::list::{self, Listed};
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::live::LiveArgs;
use crate::output::{self, Table};

/// The maximum number of sandboxes in one request.
const IDS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Only these sandboxes.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// The sort order, largest first.
    #[arg(long, value_enum, default_value_t = Sort::Age)]
    sort: Sort,
    #[command(flatten)]
    live: LiveArgs,
}

/// The sort order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// The newest first.
    Age,
    Cpu,
    #[value(alias = "mem")]
    Memory,
    Disk,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metric {
    cpu_used_pct: f64,
    mem_used: u64,
    mem_total: u64,
    disk_used: u64,
    disk_total: u64,
}

/// Processor time, memory and disk for people.
fn cells(metric: Option<&Metric>) -> [String; 3] {
    let of = |used, total| format!("{} / {}", output::bytes(used), output::bytes(total));
    match metric {
        Some(metric) => [
            format!("{:.1} %", metric.cpu_used_pct),
            of(metric.mem_used, metric.mem_total),
            of(metric.disk_used, metric.disk_total),
        ],
        None => ["-".to_owned(), "-".to_owned(), "-".to_owned()],
    }
}

/// The totals. Percentages of the sandboxes' processors are added.
fn total(rows: &[(Listed, Option<Metric>)]) -> Metric {
    let metrics = rows.iter().filter_map(|(_, metric)| metric.as_ref());
    metrics.fold(Metric::default(), |sum, metric| Metric {
        cpu_used_pct: sum.cpu_used_pct + metric.cpu_used_pct,
        mem_used: sum.mem_used + metric.mem_used,
        mem_total: sum.mem_total + metric.mem_total,
        disk_used: sum.disk_used + metric.disk_used,
        disk_total: sum.disk_total + metric.disk_total,
    })
}

impl TopArgs {
    pub(crate) async fn run(mut self, server: &Connection, json: bool) -> Result<(), Failure> {
        for id in &mut self.ids {
            *id = server.sandbox_id(id).await?;
        }
        if json {
            return self.print_json(server).await;
        }
        self.live.show(async || self.table(server).await).await
    }

    async fn sandboxes(&self, server: &Connection) -> Result<Vec<(Value, Listed)>, Failure> {
        let all = list::all(server, "limit=100").await?;
        let strange = |error| Failure::new(Kind::Server, format!("unexpected answer: {error}"));
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
        let rows = sandboxes.into_iter().map(|(_, sandbox)| {
            let metric = metrics.remove(&sandbox.id);
            // New sandboxes have no sample yet.
            let metric = metric.and_then(|value| serde_json::from_value::<Metric>(value).ok());
            (sandbox, metric)
        });
        let mut rows: Vec<(Listed, Option<Metric>)> = rows.collect();
        self.order(&mut rows);
        let mut table = Table::new(&["ID", "TEMPLATE", "CPU", "MEMORY", "DISK", "AGE", "ENDS IN"]);
        for (sandbox, metric) in &rows {
            let [cpu, memory, disk] = cells(metric.as_ref());
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
        if rows.len() > 1 {
            let [cpu, memory, disk] = cells(Some(&total(&rows)));
            let count = format!("{} sandboxes", rows.len());
            table.row(["TOTAL".to_owned(), count, cpu, memory, disk]);
        }
        Ok(table)
    }

    fn order(&self, rows: &mut [(Listed, Option<Metric>)]) {
        // Stable, so that ties stay ordered by age.
        let by = |value: fn(&Metric) -> f64| {
            move |a: &(Listed, Option<Metric>), b: &(Listed, Option<Metric>)| {
                let of = |row: &(Listed, Option<Metric>)| row.1.as_ref().map_or(-1.0, value);
                of(b).total_cmp(&of(a))
            }
        };
        match self.sort {
            Sort::Age => {}
            Sort::Cpu => rows.sort_by(by(|metric| metric.cpu_used_pct)),
            Sort::Memory => rows.sort_by_key(|row| Reverse(row.1.as_ref().map(|m| m.mem_used))),
            Sort::Disk => rows.sort_by_key(|row| Reverse(row.1.as_ref().map(|m| m.disk_used))),
        }
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
