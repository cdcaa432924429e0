//! The Dockerfile's text, and messages about its lines.

use std::fs;
use std::io::Read;
use std::path::Path;

use shoal_dockerfile::Problem;

use crate::failure::{Failure, Kind};
use crate::output::plain;

/// The largest Dockerfile that is read.
const TEXT_MAX: u64 = 4 << 20;

/// How many characters of a line are shown.
const SHOWN: usize = 120;

/// A Dockerfile with its file name.
#[derive(Debug, Clone)]
pub(super) struct Text {
    name: String,
    text: String,
}

impl Text {
    /// Reads a file, or standard input for `-`.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let mut text = String::new();
        let stdin = path == Path::new("-");
        let read = if stdin {
            std::io::stdin()
                .lock()
                .take(TEXT_MAX)
                .read_to_string(&mut text)
        } else {
            fs::File::open(path).and_then(|file| file.take(TEXT_MAX).read_to_string(&mut text))
        };
        let name = if stdin {
            "Dockerfile".to_owned()
        } else {
            path.display().to_string()
        };
        match read {
            Ok(_) => Ok(Self { name, text }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let failure = Failure::not_found(format!("there is no {name}"));
                Err(failure.with_hint("Name the Dockerfile by -f FILE."))
            }
            Err(error) => Err(Failure::other(format!("cannot read {name}: {error}"))),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The position of a line, for people; line 0 means the whole file.
    pub(super) fn at(&self, line: u32) -> String {
        match line {
            0 => self.name.clone(),
            line => format!("{}:{line}", self.name),
        }
    }

    /// The text of a line, truncated if it is long.
    pub(super) fn line(&self, line: u32) -> Option<String> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        let text = self.text.lines().nth(index)?.trim_end();
        let shown: String = text.chars().take(SHOWN).collect();
        let more = if shown.len() < text.len() { "…" } else { "" };
        Some(format!("{shown}{more}"))
    }

    /// A line with its number, for the output after a failure.
    pub(super) fn excerpt(&self, line: u32) -> Vec<String> {
        self.line(line)
            .map(|text| format!("{line} | {text}"))
            .into_iter()
            .collect()
    }

    pub(super) fn failure(&self, problem: Problem) -> Failure {
        let message = format!("{}: {}", self.at(problem.line), problem.message);
        let failure = Failure::new(Kind::Other, message).with_details(self.excerpt(problem.line));
        match problem.hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }

    /// Prints a warning about a line.
    pub(super) fn warn(&self, line: u32, message: &str) {
        eprintln!("{}: warning: {}", plain(&self.at(line)), plain(message));
    }
}
