//! Dockerfiles: read, and turned into what a template build does.
//!
//! ```text
//!   text ─▶ lines (continuations, comments, heredocs) ─▶ instructions ─▶ plan (stages of steps)
//! ```
//!
//! The rules are BuildKit's, as the Dockerfile reference and its parser have them. The libraries
//! that were looked at do not read `RUN cat <<EOF > file`, so this one is our own. Nothing here
//! touches a file or the network, and no text makes it fail in any other way than by a
//! [`Problem`] with the line.

mod arguments;
mod copy;
mod heredoc;
mod lines;
mod plan;
mod run;
mod scope;
mod stage;
mod words;

pub use copy::{CopyFiles, Source};
pub use heredoc::Heredoc;
pub use lines::parse;
pub use plan::{Options, Plan, Stage, StagedStep, TemplateBase, plan};

/// What is wrong in a Dockerfile, or worth a word, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; 0 where it is the whole file.
    pub line: u32,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
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

/// A Dockerfile, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// Its instructions, in order.
    pub instructions: Vec<Instruction>,
    /// What takes the meaning from the next character: `\`, or a backtick.
    pub escape: char,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The line it begins on, from 1.
    pub line: u32,
    /// Its name, in capitals.
    pub keyword: String,
    /// Its flags: what follows `--`, and the value behind `=`.
    pub flags: Vec<(String, Option<String>)>,
    /// The rest of it on one line.
    pub rest: String,
    /// The texts that follow it, in the order in which it names them.
    pub heredocs: Vec<Heredoc>,
}

impl Instruction {
    /// A problem on its line.
    fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.line, format!("{}: {}", self.keyword, message.into()))
    }
}
