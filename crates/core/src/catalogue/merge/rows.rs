//! Merged settings as rows for display.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Merged, Source, Sourced};

impl Merged {
    /// Every value by field name, for display. Values that are not set are omitted.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = vec![
            row("cpu", &self.cpu, |cpu| json!(cpu.to_string())),
            row("memory", &self.memory, |memory| {
                json!(format!("{}Mi", memory.0))
            }),
            row("disk", &self.disk, |disk| json!(format!("{}Mi", disk.0))),
            row("pids", &self.pids, |pids| json!(pids)),
            row("runtime", &self.runtime, |runtime| json!(runtime)),
            row("user", &self.user, |user| json!(user)),
            row("workdir", &self.workdir, |workdir| json!(workdir)),
            row("persistentContents", &self.persistent, |contents| {
                json!(contents.to_string().split(',').collect::<Vec<_>>())
            }),
            row(
                "network.allowInternetAccess",
                &self.egress.internet,
                |open| json!(open),
            ),
            row("network.allowOut", &self.egress.allow, |ranges| {
                list(ranges)
            }),
            row("network.denyOut", &self.egress.deny, |ranges| list(ranges)),
            row("network.dnsServers", &self.egress.dns_servers, |servers| {
                list(servers)
            }),
            row(
                "network.allowPublicTraffic",
                &self.allow_public_traffic,
                |public| json!(public),
            ),
            row("network.maskRequestHost", &self.mask_request_host, |mask| {
                json!(mask)
            }),
        ];
        for (group, map) in [("env", &self.env), ("metadata", &self.metadata)] {
            rows.extend(
                map.iter().map(|(name, value)| {
                    row(&format!("{group}.{name}"), value, |text| json!(text))
                }),
            );
        }
        rows.retain(|row| !row.value.is_null());
        rows
    }
}

/// One value, for display.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The field, named as in the catalogue.
    pub field: String,
    /// The value.
    pub value: Value,
    /// Its source.
    pub from: Source,
}

fn row<T>(field: &str, value: &Sourced<T>, shown: impl FnOnce(&T) -> Value) -> Row {
    Row {
        field: field.to_owned(),
        value: shown(&value.value),
        from: value.from,
    }
}

/// A list as JSON; null when it is empty.
fn list<T: Serialize>(items: &[T]) -> Value {
    if items.is_empty() {
        Value::Null
    } else {
        json!(items)
    }
}
