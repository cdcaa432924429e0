//! Long work, shown on standard error while a person looks.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often a spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// The style, which is a constant: a mistake in it shows as the plain one.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A spinner while the command waits; hidden unless stderr is a terminal.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(what.to_owned());
    bar.enable_steady_tick(TURN);
    bar
}

/// Shows how many bytes went by, of how many if that is known.
pub(crate) fn transfer(what: &str, total: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    match total {
        Some(total) => ProgressBar::new(total).with_style(style(
            "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        )),
        None => {
            ProgressBar::new_spinner().with_style(style("{msg} {spinner} {bytes} {bytes_per_sec}"))
        }
    }
    .with_message(what.to_owned())
}

/// A bar for each step of a work.
pub(crate) struct Steps {
    all: MultiProgress,
    bars: HashMap<String, ProgressBar>,
    shown: bool,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            all: MultiProgress::new(),
            bars: HashMap::new(),
            shown: io::stderr().is_terminal(),
        }
    }

    /// Shows how far a step is.
    pub(crate) fn report(&mut self, step: &str, done: u64, total: Option<u64>) {
        if !self.shown {
            return;
        }
        let bar = self.bars.entry(step.to_owned()).or_insert_with(|| {
            let bar = ProgressBar::new(1).with_style(style("{msg:32} {bar:30} {percent:>3} %"));
            self.all.add(bar).with_message(crate::output::plain(step))
        });
        if let Some(total) = total {
            bar.set_length(total);
        }
        bar.set_position(done);
        if total.is_some_and(|total| done >= total) {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        for bar in self.bars.values() {
            bar.finish_and_clear();
        }
    }
}
