//! The tables that are printed, and the page `BENCHMARKS.md`.

use std::fmt::Write;

use crate::machine::Machine;
use crate::reason;
use crate::stats::Samples;

/// The unit of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Millis,
    PerSecond,
    Mib,
    /// Of one processor.
    Percent,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Millis => format!("{value:.1} ms"),
            Self::PerSecond if value >= 100.0 => format!("{value:.0}/s"),
            Self::PerSecond => format!("{value:.1}/s"),
            Self::Mib => format!("{value:.1} MiB"),
            Self::Percent => format!("{value:.2} %"),
        }
    }
}

/// The target of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Promise {
    /// The ratio of the medians is at most this.
    Ratio(f64),
    /// The ratio of the medians is at least this.
    RatioAtLeast(f64),
    /// The median is at most this.
    AtMost(f64),
    /// The median is at least this.
    AtLeast(f64),
}

impl Promise {
    fn show(self, unit: Unit) -> String {
        match self {
            Self::Ratio(most) => format!("≤ {most} ×"),
            Self::RatioAtLeast(least) => format!("≥ {least} ×"),
            Self::AtMost(most) => format!("≤ {}", unit.show(most)),
            Self::AtLeast(least) => format!("≥ {}", unit.show(least)),
        }
    }

    /// The part of the target by which a row misses it, in percent; none when it is met.
    fn missed_by(self, row: &Row) -> Option<f64> {
        let over = match self {
            Self::Ratio(most) => row.ratio()? / most - 1.0,
            Self::RatioAtLeast(least) => 1.0 - row.ratio()? / least,
            Self::AtMost(most) => row.ours.median() / most - 1.0,
            Self::AtLeast(least) => 1.0 - row.ours.median() / least,
        };
        (over > 0.0).then_some(over * 100.0)
    }
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    unit: Unit,
    ours: Samples,
    /// The comparison.
    beside: Option<(String, Samples)>,
    promise: Option<Promise>,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: Unit, ours: Samples) -> Self {
        Self {
            what: what.into(),
            unit,
            ours,
            beside: None,
            promise: None,
        }
    }

    pub(crate) fn beside(mut self, tool: impl Into<String>, samples: Samples) -> Self {
        self.beside = Some((tool.into(), samples));
        self
    }

    pub(crate) fn promised(mut self, promise: Promise) -> Self {
        self.promise = Some(promise);
        self
    }

    fn ratio(&self) -> Option<f64> {
        let (_, beside) = self.beside.as_ref()?;
        Some(self.ours.median() / beside.median())
    }

    fn verdict(&self) -> String {
        match self.promise {
            None => String::new(),
            Some(promise) => match promise.missed_by(self) {
                None => format!("{}: met", promise.show(self.unit)),
                Some(by) => format!("{}: **missed by {by:.0} %**", promise.show(self.unit)),
            },
        }
    }

    fn cells(&self) -> [String; 8] {
        let show = |samples: &Samples| {
            [
                self.unit.show(samples.median()),
                self.unit.show(samples.p99()),
            ]
        };
        let [median, p99] = show(&self.ours);
        let (tool, [bare_median, bare_p99]) = match &self.beside {
            Some((tool, samples)) => (tool.clone(), show(samples)),
            None => Default::default(),
        };
        let ratio = self.ratio().map(|ratio| format!("{ratio:.2} ×"));
        [
            self.what.clone(),
            median,
            if self.ours.len() > 1 {
                p99
            } else {
                String::new()
            },
            tool,
            bare_median,
            bare_p99,
            ratio.unwrap_or_default(),
            self.verdict(),
        ]
    }
}

const HEAD: [&str; 8] = [
    "measurement",
    "Shoal, median",
    "p99",
    "compared with",
    "median",
    "p99",
    "ratio",
    "target",
];

/// The rows at the top of the page: the operation, and how the name of its row begins.
const HEADLINES: [(&str, &str); 8] = [
    (
        "Create a sandbox, until it is ready",
        "create → ready (runsc)",
    ),
    ("Claim a sandbox from a pool", "claim from a pool (runsc)"),
    ("Run a command", "`commands.run(\"true\")` (runsc)"),
    ("Download a file of 256 MiB", "download of 256 MiB (runsc)"),
    (
        "Proxy requests, 50 connections",
        "gateway, 50 connections (runsc)",
    ),
    (
        "Resume a paused sandbox, until a command has run",
        "resume → first command",
    ),
    (
        "Memory of an idle sandbox (PSS)",
        "memory of an idle sandbox (runsc)",
    ),
    ("Create beside other sandboxes", "create → ready beside "),
];

/// The rows and the notes of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, row: Row) {
        let cells: Vec<String> = row.cells().into_iter().filter(|c| !c.is_empty()).collect();
        println!("{}", cells.join("  |  "));
        self.rows.push(row);
    }

    /// Adds a note on how a group was measured.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The page.
    pub(crate) fn page(&self, machine: &Machine) -> String {
        let mut page = String::from(
            "# Benchmarks\n\n`make bench` writes this page. It compares Shoal with the bare tools \
             that it is made of, in one run on one machine, in turns, so that background load \
             affects both. Ratios matter; times depend on the machine. The Kubernetes operator has a \
             [page of its own](docs/kubernetes-benchmarks.md).\n\n",
        );
        self.headlines(&mut page);
        // Writing into a string cannot fail.
        let _ = writeln!(page, "\n## Machine\n\n{machine}");
        page.push_str(
            "## All measurements\n\nThe p99 of fewer than 100 samples is the maximum.\n\n",
        );
        let _ = writeln!(page, "| {} |", HEAD.join(" | "));
        let _ = writeln!(page, "|{}", "---|".repeat(HEAD.len()));
        for row in &self.rows {
            let _ = writeln!(page, "| {} |", row.cells().join(" | "));
        }
        page.push_str("\n## Methods\n\n");
        for note in &self.notes {
            let _ = writeln!(page, "- {note}");
        }
        page.push_str("\n## Missed targets\n\n");
        let missed: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| row.promise.is_some_and(|p| p.missed_by(row).is_some()))
            .collect();
        for row in &missed {
            let reason = reason::of(&row.what).unwrap_or("The reason is not known yet.");
            let _ = writeln!(page, "- {}: {}. {reason}", row.what, row.verdict());
        }
        if missed.is_empty() {
            page.push_str("Nothing.\n");
        }
        page
    }

    /// The table at the top of the page.
    fn headlines(&self, page: &mut String) {
        page.push_str(
            "## Headlines\n\nUnder gVisor (`runsc`), medians.\n\n\
             | operation | Shoal | compared with | its value | ratio |\n|---|---|---|---|---|\n",
        );
        for (operation, begin) in HEADLINES {
            if let Some(row) = self.rows.iter().find(|row| row.what.starts_with(begin)) {
                let [_, ours, _, tool, bare, _, ratio, _] = row.cells();
                let _ = writeln!(page, "| {operation} | {ours} | {tool} | {bare} | {ratio} |");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, bare: f64, promise: Promise) -> Row {
        Row::new("x", Unit::Millis, Samples::one(ours))
            .beside("y", Samples::one(bare))
            .promised(promise)
    }

    #[test]
    fn a_missed_target_shows_the_margin() {
        assert_eq!(
            row(13.0, 10.0, Promise::Ratio(1.3)).verdict(),
            "≤ 1.3 ×: met"
        );
        assert_eq!(
            row(26.0, 10.0, Promise::Ratio(1.3)).verdict(),
            "≤ 1.3 ×: **missed by 100 %**"
        );
        assert_eq!(
            row(45.0, 100.0, Promise::RatioAtLeast(0.9)).verdict(),
            "≥ 0.9 ×: **missed by 50 %**"
        );
        assert_eq!(
            row(60.0, 1.0, Promise::AtMost(60.0)).verdict(),
            "≤ 60.0 ms: met"
        );
    }

    #[test]
    fn the_page_begins_with_the_headlines() {
        let mut report = Report::default();
        report.add(Row::new("kill (runsc)", Unit::Millis, Samples::one(2.0)));
        let name = "create → ready beside 200 others (runsc)";
        report.add(
            Row::new(name, Unit::Millis, Samples::one(30.0))
                .beside("the same with none", Samples::one(20.0)),
        );
        let page = report.page(&Machine::look());
        let row =
            "| Create beside other sandboxes | 30.0 ms | the same with none | 20.0 ms | 1.50 × |";
        let at = page.find(row).unwrap();
        assert!(at < page.find("## All measurements").unwrap());
        assert!(!page[..at].contains("kill"));
    }
}
