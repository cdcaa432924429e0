//! Output: tables for people, JSON for programs.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use shoal_core::clock::Timestamp;

use crate::failure::Failure;

/// Whether standard output is looked at by a person.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a line.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints a value for programs: on several lines to a terminal, else on one.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = if is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    line(&text.map_err(|error| Failure::other(error.to_string()))?)
}

/// Rows below headings, each column as wide as it has to be.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|text| (*text).to_owned()).collect();
        Self {
            rows: vec![headings],
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows
            .push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    /// The table as text, each line with its end.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            text.push_str(cells.join("   ").trim_end());
            text.push('\n');
        }
        text
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(self.text().as_bytes())?;
        Ok(out.flush()?)
    }
}

/// Names and values, one a line.
pub(crate) fn fields(fields: &[(&str, String)]) -> Result<(), Failure> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        line(&format!("{name:<width$}   {}", plain(value)))?;
    }
    Ok(())
}

/// A text of strangers without the control characters that a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Bytes as people say them: `17 B`, `1.5 MiB`.
#[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A time as people say it, in its two largest units: `1h 5m`, `42s`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = [
        (seconds / 86_400, 'd'),
        (seconds / 3600 % 24, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let first = parts.iter().position(|(n, _)| *n > 0).unwrap_or(3);
    let shown: Vec<String> = parts[first..]
        .iter()
        .take(2)
        .enumerate()
        .filter(|(place, (n, _))| *place == 0 || *n > 0)
        .map(|(_, (n, unit))| format!("{n}{unit}"))
        .collect();
    shown.join(" ")
}

/// The time now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    Timestamp::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// How long ago a moment in RFC 3339 was.
pub(crate) fn ago(moment: &str) -> String {
    match Timestamp::parse_rfc3339(moment) {
        Some(at) => span(now().since(at)),
        None => moment.to_owned(),
    }
}

/// How long until a moment in RFC 3339.
pub(crate) fn until(moment: &str) -> String {
    match Timestamp::parse_rfc3339(moment) {
        Some(at) => span(at.since(now())),
        None => moment.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["ID", "STATE"]);
        table.row(["iabc".to_owned(), "running".to_owned()]);
        table.row(["i".to_owned(), "é".to_owned()]);
        assert_eq!(table.text(), "ID     STATE\niabc   running\ni      é\n");
    }

    #[test]
    fn a_strangers_text_cannot_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\tc\n"), "a\u{fffd}[2Jb\tc\u{fffd}");
    }

    #[test]
    fn sizes_and_times_are_said_as_people_do() {
        assert_eq!(bytes(17), "17 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(1 << 30), "1.0 GiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(span(Duration::from_secs(42)), "42s");
        assert_eq!(span(Duration::from_secs(3900)), "1h 5m");
        assert_eq!(span(Duration::from_secs(3600)), "1h");
        assert_eq!(span(Duration::ZERO), "0s");
    }
}
