//! Progress: bars on a terminal, log lines elsewhere.

use std::collections::HashMap;
use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use shoal_core::image::{Progress, ProgressSink};

/// A bar for each step.
pub(crate) struct Bars {
    what: String,
    all: MultiProgress,
    bars: Mutex<HashMap<String, ProgressBar>>,
    is_terminal: bool,
}

impl Bars {
    /// Shows progress of `what`.
    pub(crate) fn new(what: &str) -> Self {
        Self {
            what: what.to_owned(),
            all: MultiProgress::new(),
            bars: Mutex::default(),
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    fn bar(&self, step: &str) -> ProgressBar {
        let template = "{prefix:>12} {msg:32} {bar:30} {percent:>3} %";
        // The template is a constant; an error in it falls back to the default style.
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = self.all.add(ProgressBar::new(1)).with_style(style);
        bar.with_prefix(self.what.clone())
            .with_message(step.to_owned())
    }
}

impl ProgressSink for Bars {
    fn report(&self, progress: Progress) {
        let Progress { step, done, total } = progress;
        let mut bars = self.bars.lock();
        let known = bars.contains_key(&step);
        if !self.is_terminal {
            if !known {
                tracing::info!(template = self.what, step, "building a template");
                bars.insert(step, ProgressBar::hidden());
            }
            return;
        }
        let bar = bars.entry(step.clone()).or_insert_with(|| self.bar(&step));
        if let Some(total) = total {
            bar.set_length(total);
        }
        bar.set_position(done);
        if total.is_some_and(|total| done >= total) {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        for bar in self.bars.lock().values() {
            bar.finish_and_clear();
        }
    }
}
