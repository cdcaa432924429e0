//! What is printed, and kept in `BENCHMARKS.md`.

use std::fmt::Write;

use crate::machine::Machine;
use crate::reason;
use crate::stats::Samples;

/// What a quantity is counted in.
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

/// What a figure was promised to be.
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

    /// By how much of what was promised it is missed; none when it is kept.
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
    /// What it is measured beside.
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
                None => format!("{}: kept", promise.show(self.unit)),
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
    "what",
    "Shoal, median",
    "p99",
    "beside",
    "median",
    "p99",
    "ratio",
    "promised",
];

/// The table and what belongs to it.
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

    /// Says how a row was measured.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The page.
    pub(crate) fn page(&self, machine: &Machine) -> String {
        let mut page = String::from(
            "# Benchmarks\n\nWritten by `make bench`: what Shoal does beside the bare tools it is \
             made of, in one run on one machine, the two in turns so that what else the machine \
             does meets both. Ratios count; times are this machine's. A p99 of fewer than 100 \
             samples is the largest.\n\n",
        );
        // Writing into a text cannot fail.
        let _ = writeln!(page, "{machine}");
        let _ = writeln!(page, "| {} |", HEAD.join(" | "));
        let _ = writeln!(page, "|{}", "---|".repeat(HEAD.len()));
        for row in &self.rows {
            let _ = writeln!(page, "| {} |", row.cells().join(" | "));
        }
        page.push_str("\n## What is measured\n\n");
        for note in &self.notes {
            let _ = writeln!(page, "- {note}");
        }
        page.push_str("\n## What was missed\n\n");
        let missed: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| row.promise.is_some_and(|p| p.missed_by(row).is_some()))
            .collect();
        for row in &missed {
            let reason = reason::of(&row.what).unwrap_or("Not looked into yet.");
            let _ = writeln!(page, "- {}: {}. {reason}", row.what, row.verdict());
        }
        if missed.is_empty() {
            page.push_str("Nothing.\n");
        }
        page
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
    fn a_missed_promise_is_said_with_by_how_much() {
        assert_eq!(
            row(13.0, 10.0, Promise::Ratio(1.3)).verdict(),
            "≤ 1.3 ×: kept"
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
            "≤ 60.0 ms: kept"
        );
    }
}
