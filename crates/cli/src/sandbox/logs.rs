//! `shoal sandbox logs`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use shoal_core::clock::Timestamp;

use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::output;

/// The polling interval.
const POLL: Duration = Duration::from_secs(1);

/// The page size.
const PAGE: usize = 1000;

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The sandbox, which may have ended.
    #[arg(value_name = "ID")]
    id: String,
    /// Follow the log until the sandbox ends.
    #[arg(long, short)]
    follow: bool,
    /// Only the last entries.
    #[arg(long, short = 'n', value_name = "COUNT")]
    tail: Option<usize>,
    /// Show the time and level of each entry.
    #[arg(long, short)]
    timestamps: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
struct Entry {
    timestamp: String,
    message: String,
    level: String,
    #[serde(default)]
    fields: BTreeMap<String, String>,
}

impl Entry {
    /// The displayed text: process output unchanged, other entries with details.
    fn text(&self) -> String {
        if let Some(line) = self.fields.get("line") {
            return output::plain(line);
        }
        let details = self.fields.iter().filter(|(name, _)| *name != "logger");
        let details = details.map(|(name, value)| format!(" {name}={value}"));
        output::plain(&format!("{}{}", self.message, details.collect::<String>()))
    }
}

#[derive(Debug, Deserialize)]
struct Page {
    logs: Vec<Entry>,
}

impl LogsArgs {
    pub(crate) async fn run(mut self, server: &Connection, json: bool) -> Result<(), Failure> {
        self.id = server.sandbox_id(&self.id).await?;
        let mut cursor = Cursor::default();
        let mut entries = self.read(server, &mut cursor).await?;
        if let Some(tail) = self.tail {
            let left_out = entries.len().saturating_sub(tail);
            entries.drain(..left_out);
        }
        self.show(&entries, json)?;
        if self.follow {
            self.go_on(server, &mut cursor, json).await?;
        }
        Ok(())
    }

    /// Follows the log until the sandbox ends.
    async fn go_on(
        &self,
        server: &Connection,
        cursor: &mut Cursor,
        json: bool,
    ) -> Result<(), Failure> {
        loop {
            tokio::time::sleep(POLL).await;
            let lives = server
                .get::<serde_json::Value>(&format!("/sandboxes/{}", encode(&self.id)))
                .await;
            // Checked before reading, so that the last entries are read too.
            self.show(&self.read(server, cursor).await?, json)?;
            match lives {
                Err(failure) if failure.kind() == Kind::NotFound => return Ok(()),
                lives => lives?,
            };
        }
    }

    /// All entries after the cursor.
    async fn read(&self, server: &Connection, cursor: &mut Cursor) -> Result<Vec<Entry>, Failure> {
        let mut all = Vec::new();
        loop {
            let path = format!(
                "/v2/sandboxes/{}/logs?direction=forward&limit={PAGE}&cursor={}",
                encode(&self.id),
                cursor.at
            );
            let page: Page = match server.get(&path).await {
                Err(failure) if failure.kind() == Kind::NotFound => {
                    return Err(server.no_sandbox(&self.id).await);
                }
                page => page?,
            };
            let full = page.logs.len() >= PAGE;
            let before = cursor.at;
            let fresh = cursor.take(page.logs);
            let went_on = !fresh.is_empty() && cursor.at > before;
            all.extend(fresh);
            if !full {
                return Ok(all);
            }
            if !went_on {
                // More entries in one millisecond than a page holds: the rest is unreachable.
                cursor.skip();
            }
        }
    }

    fn show(&self, entries: &[Entry], json: bool) -> Result<(), Failure> {
        for entry in entries {
            if json {
                let text = serde_json::to_string(entry);
                output::line(&text.map_err(|error| Failure::other(error.to_string()))?)?;
            } else if self.timestamps {
                let text = entry.text();
                output::line(&format!("{} {:<5} {text}", entry.timestamp, entry.level))?;
            } else {
                output::line(&entry.text())?;
            }
        }
        Ok(())
    }
}

/// The read position: a millisecond, and the entries seen of it.
#[derive(Debug, Default)]
struct Cursor {
    at: i64,
    /// The number of entries seen of that millisecond.
    seen: usize,
}

impl Cursor {
    /// The new entries of a page that begins at the cursor.
    fn take(&mut self, page: Vec<Entry>) -> Vec<Entry> {
        let at = |entry: &Entry| {
            Timestamp::parse_rfc3339(&entry.timestamp).map_or(0, Timestamp::unix_millis)
        };
        let of_last = page.iter().take_while(|entry| at(entry) == self.at).count();
        let fresh: Vec<Entry> = page.into_iter().skip(self.seen.min(of_last)).collect();
        self.seen = self.seen.max(of_last);
        if let Some(last) = fresh.last().map(at).filter(|last| *last > self.at) {
            self.at = last;
            self.seen = fresh.iter().rev().take_while(|e| at(e) == last).count();
        }
        fresh
    }

    fn skip(&mut self) {
        self.at += 1;
        self.seen = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(millis: i64, message: &str) -> Entry {
        Entry {
            timestamp: Timestamp::from_unix_millis(millis).to_string(),
            message: message.to_owned(),
            level: "info".to_owned(),
            fields: BTreeMap::new(),
        }
    }

    #[test]
    fn what_a_process_printed_is_shown_as_it_is_but_cannot_steer_the_terminal() {
        let mut printed = entry(1, "output");
        printed.fields.insert("line".into(), "a\u{1b}[2J".into());
        printed.fields.insert("pid".into(), "3".into());
        assert_eq!(printed.text(), "a\u{fffd}[2J");
        let mut ended = entry(1, "end");
        ended.fields.insert("exit".into(), "0".into());
        ended.fields.insert("logger".into(), "process".into());
        assert_eq!(ended.text(), "end exit=0");
    }

    #[test]
    fn an_entry_is_shown_once_even_among_others_of_its_millisecond() {
        let all = [
            entry(5, "a"),
            entry(7, "b"),
            entry(7, "c"),
            entry(7, "d"),
            entry(9, "e"),
        ];
        let mut cursor = Cursor::default();
        let mut shown = Vec::new();
        for written in [2, 3, 3, 4, 5] {
            let page = all[..written].iter();
            let page = page.filter(|e| {
                Timestamp::parse_rfc3339(&e.timestamp)
                    .unwrap()
                    .unix_millis()
                    >= cursor.at
            });
            let page = page.cloned().collect();
            shown.extend(cursor.take(page));
        }
        assert_eq!(shown, all);
    }
}
