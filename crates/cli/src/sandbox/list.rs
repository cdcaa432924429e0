//! `shoal sandbox ls`.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::Value;

use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::output::{self, Table};
use crate::parse;

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only sandboxes in this state.
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Only sandboxes of this template.
    #[arg(long, short, value_name = "NAME")]
    template: Option<String>,
    /// Only sandboxes with this label; repeatable.
    #[arg(
        long,
        short,
        visible_alias = "label",
        visible_short_alias = 'l',
        value_name = "NAME=VALUE",
        value_parser = parse::pair
    )]
    meta: Vec<(String, String)>,
    /// Sandboxes in every state; the default without --state.
    #[arg(long, short, conflicts_with = "state")]
    all: bool,
    /// Print only ids.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Running,
    Paused,
}

/// A sandbox in a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    #[serde(rename = "sandboxID")]
    pub(crate) id: String,
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    #[serde(default)]
    pub(crate) alias: Option<String>,
    pub(crate) started_at: String,
    pub(crate) end_at: String,
    pub(crate) cpu_count: u32,
    #[serde(rename = "memoryMB")]
    pub(crate) memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    pub(crate) disk_size_mb: u32,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) state: String,
}

impl Listed {
    /// The displayed name of its template.
    pub(crate) fn template(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.template_id)
    }
}

impl ListArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let all = all(server, &self.query()).await?;
        if json {
            return output::json(&all);
        }
        let listed = all.into_iter().map(serde_json::from_value);
        let listed: Result<Vec<Listed>, _> = listed.collect();
        let listed = listed
            .map_err(|error| Failure::new(Kind::Server, format!("unexpected answer: {error}")))?;
        if self.quiet {
            return listed
                .iter()
                .try_for_each(|sandbox| output::line(&sandbox.id));
        }
        let mut table = Table::new(&[
            "ID", "TEMPLATE", "STATE", "CPU", "MEMORY", "AGE", "ENDS IN", "LABELS",
        ]);
        for sandbox in &listed {
            table.row([
                sandbox.id.clone(),
                sandbox.template().to_owned(),
                sandbox.state.clone(),
                sandbox.cpu_count.to_string(),
                format!("{} MiB", sandbox.memory_mb),
                output::ago(&sandbox.started_at),
                output::until(&sandbox.end_at),
                labels(&sandbox.metadata),
            ]);
        }
        table.print()
    }

    fn query(&self) -> String {
        let mut query = String::from("limit=100");
        match self.state {
            Some(State::Running) => query.push_str("&state=running"),
            Some(State::Paused) => query.push_str("&state=paused"),
            None => {}
        }
        if let Some(template) = &self.template {
            query.push_str(&format!("&template={}", encode(template)));
        }
        query.push_str(&with_labels(&self.meta));
        query
    }
}

/// The query parameter for labels.
pub(super) fn with_labels(labels: &[(String, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    // The server decodes three layers, as E2B's does: the query, the pairs, each text.
    let pairs = labels.iter();
    let pairs = pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    let pairs: Vec<String> = pairs.collect();
    format!("&metadata={}", encode(&encode(&pairs.join("&"))))
}

/// All pages.
pub(crate) async fn all(server: &Connection, query: &str) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    let mut path = format!("/v2/sandboxes?{query}");
    loop {
        let (headers, page): (_, Vec<Value>) = server.page(&path).await?;
        all.extend(page);
        let next = headers
            .get("x-next-token")
            .and_then(|next| next.to_str().ok());
        match next.filter(|next| !next.is_empty()) {
            Some(next) => path = format!("/v2/sandboxes?{query}&nextToken={}", encode(next)),
            None => return Ok(all),
        }
    }
}

pub(super) fn labels(metadata: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = metadata
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_encoded_as_often_as_the_server_decodes() {
        let args = ListArgs {
            state: Some(State::Running),
            template: Some("acme/base".to_owned()),
            meta: vec![("k 1".to_owned(), "v&1".to_owned())],
            all: false,
            quiet: false,
        };
        assert_eq!(
            args.query(),
            "limit=100&state=running&template=acme%2Fbase&metadata=k%2525201%253Dv%2525261"
        );
    }
}
