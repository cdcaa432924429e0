//! `search_files`: grep in the sandbox.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shoal_core::ports::inside::{CommandOutput, InsideError, RunningCommand, SandboxCommand};

use super::files::FILE_TIME;
use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;
use crate::text::{Bounded, beginning, without_nul};

/// The most matches that are answered.
const MATCHES: usize = 100;
const MATCHES_MAX: usize = 1000;

/// How much of a line is shown, in bytes.
const LINE_MAX: usize = 500;

/// The longest line that is read, in bytes.
const BUFFER_MAX: usize = 1 << 20;

/// How long a search may take.
const TIME: Duration = Duration::from_secs(60);

/// The exit code of grep for no match.
const NONE: i32 = 1;

/// Arguments of `search_files`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// An extended regular expression of grep: `fn (main|run)\(`.
    pattern: String,
    /// The directory or file to search: the user's home when absent.
    path: Option<String>,
    /// Only files whose name matches: `*.rs`.
    glob: Option<String>,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// The most matches: 100 when absent, at most 1000.
    limit: Option<usize>,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// The matches of a search.
#[derive(Debug, Serialize, JsonSchema)]
struct Searched {
    /// The sandbox.
    sandbox: String,
    /// The lines that match.
    matches: Vec<Match>,
    /// Whether there are more, or the search took too long.
    truncated: bool,
}

/// A line that matches.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct Match {
    /// The path of its file.
    path: String,
    /// Its number, from 1.
    line: u64,
    /// Its text, of which long lines have the beginning.
    text: String,
}

pub(super) fn search_files() -> Spec {
    let about = About(
        "search_files",
        "Search in files",
        "Searches text files of the sandbox for a regular expression, with grep, and answers with the lines that match.",
    );
    spec::<_, Searched, _>(&about, Effect::Reads, None, run)
}

async fn run(call: Arc<Call>, arguments: Arguments) -> Result<Reply, ToolError> {
    let limit = arguments.limit.unwrap_or(MATCHES);
    if !(1..=MATCHES_MAX).contains(&limit) {
        return Err(ToolError::invalid(format_args!(
            "`limit`: 1 to {MATCHES_MAX}"
        )));
    }
    let command = grep(&arguments)?;
    let named = arguments.sandbox.as_deref();
    let (held, client) = call.inside(named, None, FILE_TIME).await?;
    let process = client.run(command).await?;
    let found = hear(&call, process, limit).await?;
    Ok(found.reply(held.1.id.to_string()))
}

/// The command: its arguments are words of their own, so that none can be an option or another command.
fn grep(arguments: &Arguments) -> Result<SandboxCommand, ToolError> {
    let path = arguments.path.as_deref().unwrap_or(".");
    let glob = arguments.glob.as_deref().unwrap_or("*");
    for (name, text) in [
        ("pattern", arguments.pattern.as_str()),
        ("path", path),
        ("glob", glob),
    ] {
        without_nul(name, text)?;
    }
    let mut words = vec!["-rnIEHZ".to_owned(), format!("--include={glob}")];
    if arguments.ignore_case {
        words.push("-i".to_owned());
    }
    words.extend(["-e", &arguments.pattern, "--", path].map(str::to_owned));
    Ok(SandboxCommand::new("grep", words).with_timeout(TIME))
}

/// The matches.
#[derive(Debug, Default)]
struct Found {
    matches: Vec<Match>,
    truncated: bool,
}

async fn hear(call: &Call, mut process: RunningCommand, limit: usize) -> Result<Found, ToolError> {
    let (mut found, mut line, mut errors) = (Found::default(), Vec::new(), Bounded::new(2000));
    loop {
        let output = tokio::select! {
            biased;
            () = call.cancelled() => {
                let _ = process.control.kill().await;
                return Err(ToolError::cancelled());
            }
            output = process.output.next() => output,
        };
        match output {
            Some(Ok(CommandOutput::Stdout(bytes))) => {
                if found.take(&mut line, &bytes, limit) {
                    continue;
                }
                found.truncated = true;
                // It may have exited meanwhile.
                let _ = process.control.kill().await;
                return Ok(found);
            }
            Some(Ok(CommandOutput::Stderr(bytes))) => errors.push(&bytes),
            Some(Ok(CommandOutput::Exit(exit))) => {
                // Files that cannot be read are errors too, beside the matches.
                let broken = exit.code > NONE || exit.code < 0;
                if broken && found.matches.is_empty() {
                    return Err(ToolError::refused("refused", errors.text().trim()));
                }
                return Ok(found);
            }
            Some(Err(InsideError::TimedOut)) => {
                found.truncated = true;
                return Ok(found);
            }
            Some(Err(error)) => return Err(error.into()),
            None => {
                return Err(ToolError::refused(
                    "unreachable",
                    "the connection to the sandbox broke",
                ));
            }
        }
    }
}

impl Found {
    /// Takes output; returns whether more is wanted.
    fn take(&mut self, line: &mut Vec<u8>, bytes: &[u8], limit: usize) -> bool {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = BUFFER_MAX - line.len();
            line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                if self.matches.len() >= limit {
                    return false;
                }
                self.matches.extend(parse(line));
                line.clear();
            }
        }
        true
    }

    fn reply(self, sandbox: String) -> Reply {
        let mut text = String::new();
        for found in &self.matches {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{}:{}: {}", found.path, found.line, found.text);
        }
        if self.matches.is_empty() {
            text.push_str("[no match]");
        }
        if self.truncated {
            text.push_str("[… there may be more matches: narrow the search …]");
        }
        let searched = Searched {
            sandbox,
            matches: self.matches,
            truncated: self.truncated,
        };
        Reply::new(text, &searched)
    }
}

/// A line of grep: the path, a NUL character, the number, a colon, the text.
fn parse(line: &[u8]) -> Option<Match> {
    let split = line.iter().position(|byte| *byte == 0)?;
    let (path, rest) = (&line[..split], &line[split + 1..]);
    let rest = String::from_utf8_lossy(rest);
    let (number, text) = rest.split_once(':')?;
    Some(Match {
        path: String::from_utf8_lossy(path).into_owned(),
        line: number.parse().ok()?,
        text: beginning(text.trim_end(), LINE_MAX).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_parsed_wherever_the_pieces_end_and_counted() {
        for pieces in [
            &[&b"a:b\x003:x: y\nc\x001:z\n"[..]][..],
            &[b"a:b\x003:", b"x: y\nc\x00", b"1:z\n"],
        ] {
            let (mut found, mut line) = (Found::default(), Vec::new());
            for piece in pieces {
                assert!(found.take(&mut line, piece, 2));
            }
            let match_of = |path: &str, line, text: &str| Match {
                path: path.to_owned(),
                line,
                text: text.to_owned(),
            };
            assert_eq!(
                found.matches,
                [match_of("a:b", 3, "x: y"), match_of("c", 1, "z")]
            );
            assert!(!found.take(&mut line, b"d\x001:z\n", 2));
        }
    }

    #[test]
    fn an_argument_is_no_option() {
        let arguments = Arguments {
            pattern: "-r; reboot".to_owned(),
            path: Some("--help".to_owned()),
            glob: None,
            ignore_case: true,
            limit: None,
            sandbox: None,
        };
        let command = grep(&arguments).unwrap();
        assert_eq!(
            command.args,
            [
                "-rnIEHZ",
                "--include=*",
                "-i",
                "-e",
                "-r; reboot",
                "--",
                "--help"
            ]
        );
    }
}
