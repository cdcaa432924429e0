//! Code to run in a sandbox's interpreter, and its output.

use std::collections::BTreeMap;

use futures_core::stream::BoxStream;
use serde_json::{Map, Value};

use super::InsideError;

/// Code to run. Without a context or a language it runs in the default context of Python.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// The source text.
    pub code: String,
    /// The id of the context that it runs in.
    pub context: Option<String>,
    /// The language whose default context it runs in.
    pub language: Option<String>,
    /// Environment variables of this execution, over those of the sandbox.
    pub env: BTreeMap<String, String>,
}

impl Code {
    /// Runs `code` in the default context.
    #[must_use]
    pub fn new(code: &str) -> Self {
        Self {
            code: code.to_owned(),
            ..Self::default()
        }
    }

    /// Runs it in this context.
    #[must_use]
    pub fn in_context(mut self, id: &str) -> Self {
        self.context = Some(id.to_owned());
        self
    }

    /// Runs it in the default context of this language.
    #[must_use]
    pub fn in_language(mut self, language: &str) -> Self {
        self.language = Some(language.to_owned());
        self
    }

    /// Sets an environment variable for this execution.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }
}

/// Output of an execution. The stream ends after the last output, or with an error. Dropping it
/// interrupts the code.
pub type CodeStream = BoxStream<'static, Result<CodeEvent, InsideError>>;

/// One piece of an execution's output.
#[derive(Debug, Clone, PartialEq)]
pub enum CodeEvent {
    /// The number of the execution in its context.
    Count(u64),
    /// Text on standard output.
    Stdout(String),
    /// Text on standard error.
    Stderr(String),
    /// A result.
    Result(CodeResult),
    /// The code failed.
    Error(CodeError),
}

/// A displayed value, or the value of the last line.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeResult {
    /// Whether it is the value of the last line.
    pub is_main_result: bool,
    /// Its representations by name: `text`, `html`, `png` and others; unknown MIME types are in `extra`.
    pub formats: Map<String, Value>,
}

/// An error that the code raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeError {
    /// Its type.
    pub name: String,
    /// Its message.
    pub value: String,
    /// The stack, for people.
    pub traceback: String,
}
