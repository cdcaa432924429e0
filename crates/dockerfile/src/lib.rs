//! Parsing Dockerfiles and turning them into template builds.
//!
//! ```text
//!   text ─▶ lines (continuations, comments, heredocs) ─▶ instructions ─▶ plan (stages of steps)
//! ```
//!
//! The rules are BuildKit's, according to the Dockerfile reference and BuildKit's parser. The Rust
//! libraries for it do not parse `RUN cat <<EOF > file`, so the parser is our own. It accesses
//! neither files nor the network, and any invalid text yields a [`Problem`] with its line.

#![forbid(unsafe_code)]

mod arguments;
mod copy;
mod heredoc;
mod lines;
mod plan;
mod run;
mod scope;
mod stage;
mod start;
mod words;

pub use copy::{CopyFiles, Source};
pub use heredoc::Heredoc;
pub use lines::parse;
pub use plan::{Options, Plan, Stage, StagedStep, TemplateBase, plan};

/// An error or a warning about a Dockerfile, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; 0 for the whole file.
    pub line: u32,
    /// The problem.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A parsed Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// Its instructions, in order.
    pub instructions: Vec<Instruction>,
    /// The escape character: `\`, or a backtick.
    pub escape: char,
}

/// The architecture of sandboxes in the notation of images: this program's own, because a client's server is assumed to have
/// the same.
#[must_use]
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Its first line, from 1.
    pub line: u32,
    /// Its name, in upper case.
    pub keyword: String,
    /// Its flags: the name after `--`, and the value after `=`.
    pub flags: Vec<(String, Option<String>)>,
    /// The rest, on one line.
    pub rest: String,
    /// Its heredocs, in order.
    pub heredocs: Vec<Heredoc>,
}

impl Instruction {
    /// A problem on its line.
    fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.line, format!("{}: {}", self.keyword, message.into()))
    }
}
