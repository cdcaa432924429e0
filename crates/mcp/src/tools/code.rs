//! `run_code`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shoal_core::ports::inside::{Code, CodeEvent, CodeStream};
use tokio::time::timeout;

use super::command::{END, seconds};
use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;
use crate::text::{Bounded, beginning};

/// The default timeout, in seconds.
const SECONDS: u64 = 120;

/// The most results of one call, and images among them.
const RESULTS_MAX: usize = 50;
const IMAGES_MAX: usize = 8;

/// The longest image, in characters of its base64 form.
const IMAGE_MAX: usize = 5 << 20;

/// Images that models read, by the interpreter's names.
const IMAGES: [(&str, &str); 2] = [("png", "image/png"), ("jpeg", "image/jpeg")];

/// Texts that stand for a result, the best first.
const TEXTS: [&str; 6] = ["text", "markdown", "json", "latex", "html", "svg"];

/// Arguments of `run_code`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The source text. The value of its last line is a result.
    code: String,
    /// The language, if the sandbox has it: python when absent.
    language: Option<String>,
    /// Seconds after which it is interrupted: 120 when absent, at most 3600.
    timeout: Option<u64>,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// Code that has run.
#[derive(Debug, Serialize, JsonSchema)]
struct Ran {
    /// The sandbox.
    sandbox: String,
    /// Standard output. A note stands for what is left out of the middle.
    stdout: String,
    /// Standard error, in the same way.
    stderr: String,
    /// Displayed results, and the value of the last line.
    results: Vec<Shown>,
    /// The error that it raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Raised>,
    /// Results and images that are left out.
    left_out: usize,
}

/// A result.
#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    /// Whether it is the value of the last line.
    main: bool,
    /// The names of its representations: text, png, html, …
    formats: Vec<String>,
    /// It as a text, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// An error that code raised.
#[derive(Debug, Serialize, JsonSchema)]
struct Raised {
    /// Its type.
    name: String,
    /// Its message.
    message: String,
    /// Where it was raised.
    traceback: String,
}

pub(super) fn run_code() -> Spec {
    let about = About(
        "run_code",
        "Run code",
        "Runs code in the sandbox's interpreter, which keeps variables between calls. Plots and images come back as \
         images. The sandbox must have an interpreter: create one from template `code-interpreter-v1`, or open the \
         session with it.",
    );
    spec::<_, Ran, _>(&about, Effect::Runs, Some("code.run"), run)
}

async fn run(call: Arc<Call>, arguments: Arguments) -> Result<Reply, ToolError> {
    let time = Duration::from_secs(seconds(arguments.timeout, SECONDS)?);
    let (held, client) = call
        .inside(arguments.sandbox.as_deref(), None, time)
        .await?;
    let code = Code {
        language: arguments.language,
        ..Code::new(&arguments.code)
    };
    let running = async {
        let stream = client.run_code(code).await?;
        hear(&call, stream).await
    };
    // Dropping the stream interrupts the code.
    let heard = tokio::select! {
        heard = timeout(time, running) => heard,
        () = call.cancelled() => return Err(ToolError::cancelled()),
    };
    let heard = heard.map_err(|_| {
        let message = format!(
            "interrupted: it ran longer than its timeout of {} s",
            time.as_secs()
        );
        ToolError::refused("timeout", message)
    })??;
    Ok(heard.reply(held.1.id.to_string()))
}

/// The collected results of code.
#[derive(Debug)]
struct Heard {
    stdout: Bounded,
    stderr: Bounded,
    results: Vec<Shown>,
    images: Vec<ContentBlock>,
    error: Option<Raised>,
    left_out: usize,
}

async fn hear(call: &Call, mut stream: CodeStream) -> Result<Heard, ToolError> {
    let mut heard = Heard::new();
    let mut told = 0;
    while let Some(event) = stream.next().await {
        let event = event?;
        if let CodeEvent::Stdout(text) | CodeEvent::Stderr(text) = &event {
            told += text.len();
            call.tell(told, beginning(text, END)).await;
        }
        heard.add(event);
    }
    Ok(heard)
}

impl Heard {
    fn new() -> Self {
        Self {
            stdout: Bounded::new(END),
            stderr: Bounded::new(END),
            results: Vec::new(),
            images: Vec::new(),
            error: None,
            left_out: 0,
        }
    }

    fn add(&mut self, event: CodeEvent) {
        match event {
            CodeEvent::Count(_) => {}
            CodeEvent::Stdout(text) => self.stdout.push(text.as_bytes()),
            CodeEvent::Stderr(text) => self.stderr.push(text.as_bytes()),
            CodeEvent::Result(result) => self.show(result.is_main_result, &result.formats),
            CodeEvent::Error(error) => {
                self.error = Some(Raised {
                    name: error.name,
                    message: beginning(&error.value, END).to_owned(),
                    traceback: beginning(&plain(&error.traceback), END).to_owned(),
                });
            }
        }
    }

    fn show(&mut self, main: bool, formats: &Map<String, Value>) {
        for (name, mime) in IMAGES {
            let Some(data) = formats.get(name).and_then(Value::as_str) else {
                continue;
            };
            // Interpreters break base64 into lines.
            let data: String = data.split_whitespace().collect();
            if data.len() > IMAGE_MAX || self.images.len() >= IMAGES_MAX {
                self.left_out += 1;
            } else {
                self.images.push(ContentBlock::image(data, mime));
            }
        }
        if self.results.len() >= RESULTS_MAX {
            self.left_out += 1;
            return;
        }
        let text = TEXTS.iter().find_map(|name| formats.get(*name));
        let text = text.map(|text| match text {
            Value::String(text) => beginning(text, END).to_owned(),
            other => beginning(&other.to_string(), END).to_owned(),
        });
        let present = formats.iter().filter(|(_, value)| !value.is_null());
        self.results.push(Shown {
            main,
            formats: present
                .map(|(name, _)| beginning(name, 64).to_owned())
                .collect(),
            text,
        });
    }

    fn reply(self, sandbox: String) -> Reply {
        let ran = Ran {
            sandbox,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            results: self.results,
            error: self.error,
            left_out: self.left_out,
        };
        let mut parts = vec![ran.stdout.clone()];
        if !ran.stderr.is_empty() {
            parts.push(format!("[stderr]\n{}", ran.stderr));
        }
        parts.extend(ran.results.iter().filter_map(|shown| shown.text.clone()));
        if let Some(error) = &ran.error {
            parts.push(format!(
                "{}: {}\n{}",
                error.name, error.message, error.traceback
            ));
        }
        if ran.left_out > 0 {
            parts.push(format!("[{} results or images are left out]", ran.left_out));
        }
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() && self.images.is_empty() {
            parts.push("[no output]".to_owned());
        }
        let mut reply = Reply::new(parts.join("\n"), &ran);
        if parts.is_empty() {
            reply.content.clear();
        }
        reply.content.extend(self.images);
        reply.failed = ran.error.is_some();
        reply
    }
}

/// A text without the colours of a terminal.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic());
        rest = end.map_or("", |end| &after[end + 1..]);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_core::ports::inside::{CodeError, CodeResult};

    use super::*;

    fn reply(events: Vec<CodeEvent>) -> Reply {
        let mut heard = Heard::new();
        events.into_iter().for_each(|event| heard.add(event));
        heard.reply("i1".to_owned())
    }

    fn result(formats: Value) -> CodeEvent {
        CodeEvent::Result(CodeResult {
            is_main_result: true,
            formats: formats.as_object().unwrap().clone(),
        })
    }

    #[test]
    fn a_plot_is_an_image_and_its_text() {
        let reply = reply(vec![
            CodeEvent::Stdout("printed\n".into()),
            result(json!({"text": "<Figure>", "png": "aGk=\n", "html": null})),
        ]);
        assert_eq!(
            reply.content[0].as_text().unwrap().text,
            "printed\n\n<Figure>"
        );
        assert_eq!(reply.content[1], ContentBlock::image("aGk=", "image/png"));
        assert_eq!(
            reply.structured["results"][0]["formats"],
            json!(["png", "text"])
        );
        assert!(!reply.failed);
    }

    #[test]
    fn an_exception_is_an_error_of_the_tool_without_colours() {
        let reply = reply(vec![CodeEvent::Error(CodeError {
            name: "ValueError".into(),
            value: "no".into(),
            traceback: "\u{1b}[0;31mat line 1\u{1b}[0m".into(),
        })]);
        assert!(reply.failed);
        assert_eq!(
            reply.content[0].as_text().unwrap().text,
            "ValueError: no\nat line 1"
        );
    }

    #[test]
    fn too_many_images_are_left_out_and_counted() {
        let image = || result(json!({"jpeg": "aGk="}));
        let reply = reply((0..=IMAGES_MAX).map(|_| image()).collect());
        let images = reply
            .content
            .iter()
            .filter(|block| block.as_text().is_none());
        assert_eq!(images.count(), IMAGES_MAX);
        assert_eq!(reply.structured["left_out"], 1);
    }
}
