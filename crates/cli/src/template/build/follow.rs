//! Following a build on the server: its log and its result.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use shoal_protocol::build::{
    BuildStatus, LOG_PAGE, Level, LogEntry, Part, Place, Progress, Reason,
};

use super::build_path;
use super::text::Text;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::output::plain;
use crate::sandbox::interruptions::Interruptions;

/// The first polling interval, as in E2B's clients.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest polling interval, used when nothing happens.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How many consecutive polls may fail before giving up: about 20 seconds.
const FAILURES_MAX: u32 = 12;

/// How many lines of the log are repeated after a failure.
const LAST_LINES: usize = 10;

/// A started build.
pub(super) struct Build {
    template: String,
    build: String,
    /// The line of each step, and the Dockerfile.
    places: Option<(HashMap<Place, u32>, Text)>,
    quiet: bool,
    /// The number of received log entries.
    seen: usize,
    last: VecDeque<String>,
}

impl Build {
    pub(super) fn new(
        template: &str,
        build: &str,
        places: Option<(HashMap<Place, u32>, Text)>,
        quiet: bool,
    ) -> Self {
        Self {
            template: template.to_owned(),
            build: build.to_owned(),
            places,
            quiet,
            seen: 0,
            last: VecDeque::new(),
        }
    }

    /// Shows the log until the build has ended.
    ///
    /// # Errors
    /// When the build failed, with the Dockerfile's line; when the user or the connection
    /// interrupts.
    pub(super) async fn follow(mut self, server: &Connection) -> Result<(), Failure> {
        let mut interruptions = Interruptions::hear();
        let name = format!("{}/{}", self.template, self.build);
        let ended = tokio::select! {
            ended = self.outcome(server) => ended,
            _ = interruptions.next() => {
                return Err(Failure::new(Kind::Interrupted, "interrupted; the build continues on the server")
                    .with_hint(format!(
                        "`shoal template build --watch {name}` shows the rest of it, `--cancel {name}` ends it."
                    )));
            }
        };
        match ended {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(self.failed(&reason)),
            Err(failure) if failure.kind() == Kind::NotFound => Err(failure),
            Err(failure) => Err(failure.with_hint(format!(
                "The build may continue on the server: `shoal template build --watch {name}` shows it."
            ))),
        }
    }

    /// The reason of a failure; `None` when the build is ready.
    async fn outcome(&mut self, server: &Connection) -> Result<Option<Reason>, Failure> {
        let mut pause = FIRST_PAUSE;
        let mut failures = 0;
        loop {
            let status = match self.ask(server).await {
                Err(failure) if failures < FAILURES_MAX && is_passing(&failure) => {
                    failures += 1;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
                status => status?,
            };
            failures = 0;
            let news = status.log_entries.len();
            status.log_entries.iter().for_each(|entry| self.show(entry));
            if news > 0 {
                pause = FIRST_PAUSE;
                // There may be more entries; after the end, all are fetched.
                if news >= LOG_PAGE || status.status.is_final() {
                    continue;
                }
            } else if status.status.is_final() {
                return Ok((status.status == Progress::Error).then(|| {
                    status.reason.unwrap_or_else(|| Reason {
                        message: "the build failed, and the server does not say why".to_owned(),
                        step: None,
                        log_entries: Vec::new(),
                    })
                }));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    async fn ask(&mut self, server: &Connection) -> Result<BuildStatus, Failure> {
        let path = build_path(&self.template, &self.build);
        let path = format!("{path}/status?logsOffset={}&limit={LOG_PAGE}", self.seen);
        let status: BuildStatus = server.get(&path).await?;
        self.seen += status.log_entries.len();
        Ok(status)
    }

    fn show(&mut self, entry: &LogEntry) {
        let mark = match entry.level {
            Level::Debug => return,
            Level::Info => "",
            Level::Warn => "warning: ",
            // The reason of a failure: `failed` prints it with the Dockerfile's line.
            Level::Error => return,
        };
        for line in entry.message.lines() {
            let line = format!("{mark}{}", plain(line));
            if !self.quiet {
                eprintln!("{line}");
            }
            if self.last.len() == LAST_LINES {
                self.last.pop_front();
            }
            self.last.push_back(line);
        }
    }

    /// The error of a failed build, with the Dockerfile's line.
    fn failed(&self, reason: &Reason) -> Failure {
        let place: Option<Place> = reason.step.as_deref().and_then(|step| step.parse().ok());
        let (message, mut details) = self.located(place, &reason.message);
        if self.quiet {
            details.extend(self.log_end(reason));
        }
        Failure::new(Kind::Other, message).with_details(details)
    }

    /// The last lines of a log that was not shown.
    fn log_end(&self, reason: &Reason) -> Vec<String> {
        let entries = reason.log_entries.iter();
        let printed = entries.filter(|entry| entry.level != Level::Error);
        let lines = printed.flat_map(|entry| entry.message.lines());
        let mut last: Vec<String> = lines.map(str::to_owned).collect();
        if last.is_empty() {
            last.extend(self.last.iter().cloned());
        }
        last.drain(..last.len().saturating_sub(LAST_LINES));
        if last.is_empty() {
            return last;
        }
        let lines = last.into_iter().map(|line| format!("  {line}"));
        std::iter::once("The end of the log:".to_owned())
            .chain(lines)
            .collect()
    }

    fn located(&self, place: Option<Place>, message: &str) -> (String, Vec<String>) {
        let places = self.places.as_ref();
        let line = places.zip(place).and_then(|((lines, text), place)| {
            let line = *lines.get(&place)?;
            Some((line, text))
        });
        if let Some((line, text)) = line {
            let instruction = text.line(line).unwrap_or_default();
            let instruction = instruction.trim().trim_end_matches(['\\', '`']).trim_end();
            return (
                format!("{}: {instruction}: {message}", text.at(line)),
                text.excerpt(line),
            );
        }
        let message = match place.map(|place| place.part) {
            Some(Part::Finalize) => {
                format!("after the last step (start command, ready command, snapshot): {message}")
            }
            Some(Part::Base) => format!("the base of the build: {message}"),
            Some(Part::Step(step)) => format!("step {step}: {message}"),
            None => message.to_owned(),
        };
        (message, Vec::new())
    }
}

/// Whether a retry may help.
fn is_passing(failure: &Failure) -> bool {
    matches!(
        failure.kind(),
        Kind::Unreachable | Kind::NotNow | Kind::Server
    )
}
