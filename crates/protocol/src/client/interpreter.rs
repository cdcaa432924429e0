//! The code interpreter: runs code in a context and reads the output while it comes.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
pub use shoal_core::ports::inside::{Code, CodeError, CodeEvent, CodeResult};

use super::{ClientError, EnvdClient, REQUEST_TIMEOUT, success};

/// The longest line of output, in bytes. One line holds a whole result, such as an image.
const LINE_MAX: usize = 128 << 20;

/// A client for the code interpreter of one sandbox.
///
/// ```no_run
/// # async fn example() -> Result<(), shoal_protocol::client::ClientError> {
/// use shoal_protocol::client::{Code, CodeEvent, EnvdClient, InterpreterClient};
///
/// let envd = EnvdClient::at(([10, 11, 0, 2], 49999).into());
/// let interpreter = InterpreterClient::new(envd);
/// let mut execution = interpreter.run_code(&Code::new("print(6 * 7)")).await?;
/// while let Some(event) = execution.next().await? {
///     if let CodeEvent::Stdout(text) = event {
///         print!("{text}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InterpreterClient(EnvdClient);

/// The body of an execution.
#[derive(Serialize)]
struct Execute<'a> {
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env_vars: &'a BTreeMap<String, String>,
}

/// A context: a kernel with its own variables.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CodeContext {
    /// Its id.
    pub id: String,
    /// The language of its kernel.
    pub language: String,
    /// The directory in which it started.
    pub cwd: String,
}

/// A line of an answer.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    NumberOfExecutions {
        execution_count: u64,
    },
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    Result {
        #[serde(default)]
        is_main_result: bool,
        #[serde(flatten)]
        formats: Map<String, Value>,
    },
    Error {
        name: String,
        value: String,
        traceback: String,
    },
    EndOfExecution,
    /// A keepalive, or a line that a newer daemon adds.
    #[serde(other)]
    Other,
}

/// An execution under way. Dropping it interrupts the code.
pub struct Execution {
    body: Incoming,
    received: Vec<u8>,
    /// How many bytes of `received` hold no line break.
    searched: usize,
    ended: bool,
}

impl Execution {
    /// Waits for the next output. `None` at the end.
    ///
    /// # Errors
    /// When the connection breaks before the end, or an answer is no line of output.
    pub async fn next(&mut self) -> Result<Option<CodeEvent>, ClientError> {
        while !self.ended {
            let Some(line) = self.line().await? else {
                let early = "the output ended before the execution";
                return Err(ClientError::Interrupted(early.into()));
            };
            return Ok(Some(match parse(&line)? {
                Line::NumberOfExecutions { execution_count } => CodeEvent::Count(execution_count),
                Line::Stdout { text } => CodeEvent::Stdout(text),
                Line::Stderr { text } => CodeEvent::Stderr(text),
                Line::Result {
                    is_main_result,
                    formats,
                } => CodeEvent::Result(CodeResult {
                    is_main_result,
                    formats,
                }),
                Line::Error {
                    name,
                    value,
                    traceback,
                } => CodeEvent::Error(CodeError {
                    name,
                    value,
                    traceback,
                }),
                Line::EndOfExecution => {
                    self.ended = true;
                    continue;
                }
                Line::Other => continue,
            }));
        }
        Ok(None)
    }

    /// The next line without its break; none at the end of the answer.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        loop {
            let fresh = &self.received[self.searched..];
            if let Some(end) = fresh.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                let rest = self.received.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.received, rest);
                line.truncate(end);
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.received.len();
            if self.searched > LINE_MAX {
                return Err(ClientError::malformed("a line of output is too long"));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| ClientError::Interrupted(error.into()))?;
            if let Ok(bytes) = frame.into_data() {
                self.received.extend_from_slice(&bytes);
            }
        }
    }
}

fn parse(line: &[u8]) -> Result<Line, ClientError> {
    serde_json::from_slice(line)
        .or_else(|_| serde_json::from_slice(&without_lone_surrogates(line)))
        .map_err(ClientError::malformed)
}

/// Replaces halves of surrogate pairs. Python prints them, and no text of Rust can hold them.
fn without_lone_surrogates(line: &[u8]) -> Vec<u8> {
    let unit = |at: usize| -> Option<u16> {
        let escape = line.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()
    };
    let (mut whole, mut at) = (Vec::with_capacity(line.len()), 0);
    while at < line.len() {
        let taken = match (unit(at), unit(at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                whole.extend_from_slice(b"\\ufffd");
                at += 6;
                continue;
            }
            // An escaped character, which may be a backslash.
            _ if line[at] == b'\\' => 2,
            _ => 1,
        };
        let end = (at + taken).min(line.len());
        whole.extend_from_slice(&line[at..end]);
        at = end;
    }
    whole
}

impl InterpreterClient {
    /// A client over `envd`, which has to reach the interpreter's port (49999) instead of the daemon's.
    #[must_use]
    pub fn new(envd: EnvdClient) -> Self {
        Self(envd)
    }

    /// Runs code. Returns once its execution has started, behind others in the same context.
    ///
    /// # Errors
    /// When the interpreter refuses it, or cannot be reached.
    pub async fn run_code(&self, code: &Code) -> Result<Execution, ClientError> {
        let body = Execute {
            code: &code.code,
            context_id: code.context.as_deref(),
            language: code.language.as_deref(),
            env_vars: &code.env,
        };
        let body = serde_json::to_vec(&body).map_err(ClientError::malformed)?;
        let mut request = self.0.request(Method::POST, "/execute", body.into())?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let response = self.0.transport.send_request(request).await?;
        Ok(Execution {
            body: success(response).await?.into_body(),
            received: Vec::new(),
            searched: 0,
            ended: false,
        })
    }

    /// Creates a context. Without a language it is Python's, without a directory it starts in the
    /// user's home.
    ///
    /// # Errors
    /// When the interpreter refuses it, or cannot be reached.
    pub async fn create_context(
        &self,
        language: Option<&str>,
        cwd: Option<&str>,
    ) -> Result<CodeContext, ClientError> {
        let mut asked = Map::new();
        for (name, value) in [("language", language), ("cwd", cwd)] {
            asked.extend(value.map(|value| (name.to_owned(), Value::from(value))));
        }
        let body = Value::Object(asked).to_string();
        let answer = self.call(Method::POST, "/contexts", body.into()).await?;
        serde_json::from_slice(&answer).map_err(ClientError::malformed)
    }

    /// The contexts that exist.
    ///
    /// # Errors
    /// When the interpreter cannot be reached.
    pub async fn contexts(&self) -> Result<Vec<CodeContext>, ClientError> {
        let answer = self.call(Method::GET, "/contexts", Bytes::new()).await?;
        serde_json::from_slice(&answer).map_err(ClientError::malformed)
    }

    /// Restarts the kernel of a context, which loses its variables.
    ///
    /// # Errors
    /// When the context does not exist, or the interpreter cannot be reached.
    pub async fn restart_context(&self, id: &str) -> Result<(), ClientError> {
        let path = format!("{}/restart", context_path(id)?);
        self.call(Method::POST, &path, Bytes::new()).await.map(drop)
    }

    /// Removes a context and ends its kernel.
    ///
    /// # Errors
    /// When the context does not exist, or the interpreter cannot be reached.
    pub async fn delete_context(&self, id: &str) -> Result<(), ClientError> {
        let path = context_path(id)?;
        let removed = self.call(Method::DELETE, &path, Bytes::new()).await;
        removed.map(drop)
    }

    async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let mut request = self.0.request(method, path, body)?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let (_, answer) = self.0.call(request, REQUEST_TIMEOUT).await?;
        Ok(answer)
    }
}

/// The path of a context. An id with other characters would name another route.
fn context_path(id: &str) -> Result<String, ClientError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if id.is_empty() || !id.bytes().all(plain) {
        return Err(ClientError::InvalidPath(id.to_owned()));
    }
    Ok(format!("/contexts/{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_stay() {
        let text = |line: &str| match parse(line.as_bytes()) {
            Ok(Line::Stdout { text }) => text,
            other => panic!("{other:?}"),
        };
        let line = |text: &str| format!(r#"{{"type":"stdout","text":"{text}","timestamp":"t"}}"#);
        assert_eq!(text(&line(r"a\ud83d\ude00b")), "a\u{1f600}b");
        assert_eq!(text(&line(r"a\ud83db\ude00")), "a\u{fffd}b\u{fffd}");
        assert_eq!(text(&line(r"\\ud83d \ud83d")), "\\ud83d \u{fffd}");
    }

    #[test]
    fn lines_of_a_newer_daemon_are_skipped_and_other_text_is_refused() {
        assert!(matches!(parse(br#"{"type":"keepalive"}"#), Ok(Line::Other)));
        assert!(matches!(parse(br#"{"type":"new","x":1}"#), Ok(Line::Other)));
        for bad in [&b"{}"[..], b"", b"x", br#"{"type":"stdout"}"#] {
            assert!(parse(bad).is_err());
        }
    }

    #[test]
    fn the_id_of_a_context_cannot_name_another_route() {
        assert_eq!(context_path("a-1").unwrap(), "/contexts/a-1");
        for bad in ["", "../execute", "a/b", "a?b"] {
            assert!(context_path(bad).is_err(), "{bad}");
        }
    }
}
