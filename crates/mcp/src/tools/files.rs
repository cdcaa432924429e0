//! `read_file`, `write_file` and `edit_file`.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shoal_core::ports::inside::{FileContents, SandboxClient};

use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;
use crate::text::without_nul;

/// The most text that `read_file` answers, in bytes.
const TEXT_MAX: usize = 128 << 10;

/// The largest file that is edited, shown as an image, or read as a resource, in bytes.
pub(crate) const WHOLE_MAX: u64 = 4 << 20;

/// How much of a file decides whether it is a text, in bytes.
const LOOK: usize = 8 << 10;

/// How long calls on files may take beyond the session's idle time.
pub(super) const FILE_TIME: Duration = Duration::from_secs(60);

/// The beginnings of images that models read.
const IMAGES: [(&[u8], &str); 4] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
];

/// Arguments of `read_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    /// The path; a relative one is below the user's home directory.
    path: String,
    /// The first line to read, from 1.
    offset: Option<usize>,
    /// The most lines to read.
    limit: Option<usize>,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// A file, or a part of it.
#[derive(Debug, Serialize, JsonSchema)]
struct ReadFile {
    /// The sandbox.
    sandbox: String,
    /// The path.
    path: String,
    /// The text; absent for an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The first line after the text, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
}

/// Arguments of `write_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    /// The path; a relative one is below the user's home directory. Directories are made as needed.
    path: String,
    /// The new contents.
    content: String,
    /// Whether `content` is base64, for a file that is no text.
    #[serde(default)]
    base64: bool,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
struct Written {
    /// The sandbox.
    sandbox: String,
    /// The path.
    path: String,
    /// Its size in bytes.
    bytes: usize,
}

/// Arguments of `edit_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    /// The path; a relative one is below the user's home directory.
    path: String,
    /// The text to replace, exactly as it is in the file, with its indentation. It must occur once.
    old: String,
    /// The text in its place.
    new: String,
    /// Whether every occurrence is replaced.
    #[serde(default)]
    all: bool,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// A file that was edited.
#[derive(Debug, Serialize, JsonSchema)]
struct Edited {
    /// The sandbox.
    sandbox: String,
    /// The path.
    path: String,
    /// How many occurrences were replaced.
    replaced: usize,
}

pub(super) fn tools() -> Vec<Spec> {
    let read_file = About(
        "read_file",
        "Read a file",
        "Reads a text file of the sandbox, whole or some lines of it, or an image (PNG, JPEG, GIF, WebP).",
    );
    let write_file = About(
        "write_file",
        "Write a file",
        "Writes a file in the sandbox, over one that is there.",
    );
    let edit_file = About(
        "edit_file",
        "Edit a file",
        "Replaces a text in a file of the sandbox by another. Fails when the text is not in the file, or more than once.",
    );
    vec![
        spec::<_, ReadFile, _>(&read_file, Effect::Reads, Some("file.read"), read),
        spec::<_, Written, _>(&write_file, Effect::Sets, Some("file.write"), write),
        spec::<_, Edited, _>(&edit_file, Effect::Changes, Some("file.write"), edit),
    ]
}

async fn read(call: Arc<Call>, arguments: ReadArguments) -> Result<Reply, ToolError> {
    let path = arguments.path;
    without_nul("path", &path)?;
    if arguments.offset == Some(0) || arguments.limit == Some(0) {
        return Err(ToolError::invalid("`offset` and `limit` begin at 1"));
    }
    let named = arguments.sandbox.as_deref();
    let (held, client) = call.inside(named, None, FILE_TIME).await?;
    let sandbox = held.1.id.to_string();
    let file = client.read_file(path.clone()).await?;
    let size = file.size;
    let offset = arguments.offset.unwrap_or(1);
    let lines = Lines::new(offset, arguments.limit.unwrap_or(usize::MAX));
    match lines.read(file).await? {
        Part::Text { text, next } => {
            let mut shown = text.clone();
            if let Some(next) = next {
                shown += &format!("\n[… there is more: continue with offset {next} …]");
            }
            let read = ReadFile {
                sandbox,
                path,
                text: Some(text),
                next_offset: next,
            };
            Ok(Reply::new(shown, &read))
        }
        Part::Other(beginning) => {
            let kind = IMAGES
                .iter()
                .find(|(magic, _)| beginning.starts_with(magic));
            let Some((_, mime)) = kind else {
                let size = size.map_or_else(String::new, |size| format!(" of {size} bytes"));
                return Err(ToolError::refused(
                    "not_text",
                    format_args!("{path} is a binary file{size}: look at it with run_command"),
                ));
            };
            let bytes = whole(client.as_ref(), &path).await?;
            let read = ReadFile {
                sandbox,
                path,
                text: None,
                next_offset: None,
            };
            let mut reply = Reply::new("", &read);
            reply.content = vec![ContentBlock::image(BASE64_STANDARD.encode(&bytes), *mime)];
            Ok(reply)
        }
    }
}

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Lines, and the number of the first line after them, if there is one.
    Text { text: String, next: Option<usize> },
    /// The file is no text: its beginning.
    Other(Vec<u8>),
}

/// Picks lines out of a stream, without the rest in memory.
#[derive(Debug)]
struct Lines {
    offset: usize,
    limit: usize,
    /// The beginning of the file.
    look: Vec<u8>,
    kept: Vec<u8>,
    /// The number of the line that the next byte belongs to.
    line: usize,
    more: bool,
}

impl Lines {
    fn new(offset: usize, limit: usize) -> Self {
        Self {
            offset,
            limit,
            look: Vec::new(),
            kept: Vec::new(),
            line: 1,
            more: false,
        }
    }

    async fn read(mut self, file: FileContents) -> Result<Part, ToolError> {
        let mut contents = file.contents;
        while let Some(bytes) = contents.next().await {
            let bytes = bytes.map_err(|error| {
                ToolError::refused(
                    "unreachable",
                    format_args!("the file cannot be read: {error}"),
                )
            })?;
            let room = LOOK.saturating_sub(self.look.len());
            self.look.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if self.look.contains(&0) || !self.take(&bytes) {
                break;
            }
        }
        self.part()
    }

    /// Takes bytes; returns whether more can be kept.
    fn take(&mut self, bytes: &[u8]) -> bool {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let skipped = self.line < self.offset;
            let past = self.line >= self.offset.saturating_add(self.limit);
            let room = TEXT_MAX - self.kept.len();
            if past || (!skipped && piece.len() > room) {
                if !past {
                    self.kept.extend_from_slice(&piece[..room]);
                }
                self.more = true;
                return false;
            }
            if !skipped {
                self.kept.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                self.line += 1;
            }
        }
        true
    }

    fn part(mut self) -> Result<Part, ToolError> {
        if self.look.contains(&0) || is_image(&self.look) {
            return Ok(Part::Other(self.look));
        }
        if self.offset > self.line {
            return Err(ToolError::invalid(format_args!(
                "`offset`: the file ends before line {}",
                self.offset
            )));
        }
        if self.more && !self.kept.is_empty() && !self.kept.ends_with(b"\n") {
            match self.kept.iter().rposition(|byte| *byte == b'\n') {
                // The next part begins with the whole line.
                Some(end) => self.kept.truncate(end + 1),
                // The rest of this line is left out.
                None => self.line += 1,
            }
        }
        Ok(Part::Text {
            text: String::from_utf8_lossy(&self.kept).into_owned(),
            next: self.more.then_some(self.line),
        })
    }
}

fn is_image(bytes: &[u8]) -> bool {
    IMAGES.iter().any(|(magic, _)| bytes.starts_with(magic))
}

/// A whole file.
///
/// # Errors
/// When it is larger than [`WHOLE_MAX`], or cannot be read.
pub(crate) async fn whole(client: &dyn SandboxClient, path: &str) -> Result<Vec<u8>, ToolError> {
    let too_large = || {
        ToolError::refused(
            "too_large",
            format_args!("{path} has more than {WHOLE_MAX} bytes: use run_command"),
        )
    };
    let mut file = client.read_file(path.to_owned()).await?;
    if file.size.is_some_and(|size| size > WHOLE_MAX) {
        return Err(too_large());
    }
    let mut whole = Vec::new();
    while let Some(bytes) = file.contents.next().await {
        let bytes = bytes.map_err(|error| {
            ToolError::refused(
                "unreachable",
                format_args!("{path} cannot be read: {error}"),
            )
        })?;
        whole.extend_from_slice(&bytes);
        if whole.len() as u64 > WHOLE_MAX {
            return Err(too_large());
        }
    }
    Ok(whole)
}

async fn write(call: Arc<Call>, arguments: WriteArguments) -> Result<Reply, ToolError> {
    let path = arguments.path;
    without_nul("path", &path)?;
    let contents = if arguments.base64 {
        let decoded = BASE64_STANDARD.decode(arguments.content.trim());
        decoded.map_err(|error| ToolError::invalid(format_args!("`content`: {error}")))?
    } else {
        arguments.content.into_bytes()
    };
    let bytes = contents.len();
    let named = arguments.sandbox.as_deref();
    let (held, client) = call.inside(named, None, FILE_TIME).await?;
    put(client.as_ref(), &path, contents).await?;
    let written = Written {
        sandbox: held.1.id.to_string(),
        path,
        bytes,
    };
    let text = format!("wrote {bytes} bytes to {}", written.path);
    Ok(Reply::new(text, &written))
}

async fn put(client: &dyn SandboxClient, path: &str, bytes: Vec<u8>) -> Result<(), ToolError> {
    let contents = stream::iter([Ok(Bytes::from(bytes))]).boxed();
    Ok(client.write_file(path.to_owned(), contents).await?)
}

async fn edit(call: Arc<Call>, arguments: EditArguments) -> Result<Reply, ToolError> {
    let path = arguments.path;
    without_nul("path", &path)?;
    let named = arguments.sandbox.as_deref();
    let (held, client) = call.inside(named, None, FILE_TIME).await?;
    let before = whole(client.as_ref(), &path).await?;
    let before = String::from_utf8(before)
        .map_err(|_| ToolError::refused("not_text", format_args!("{path} is no UTF-8 text")))?;
    let (after, replaced) = replaced(&before, &arguments.old, &arguments.new, arguments.all)
        .map_err(|why| ToolError::refused("no_edit", format_args!("{path}: {why}")))?;
    put(client.as_ref(), &path, after.into_bytes()).await?;
    let edited = Edited {
        sandbox: held.1.id.to_string(),
        path,
        replaced,
    };
    let text = format!("replaced {replaced} in {}", edited.path);
    Ok(Reply::new(text, &edited))
}

/// The text with `new` in place of `old`, and how often.
fn replaced(text: &str, old: &str, new: &str, all: bool) -> Result<(String, usize), String> {
    if old.is_empty() {
        return Err("`old` is empty: use write_file for a new file".to_owned());
    }
    if old == new {
        return Err("`old` and `new` are the same".to_owned());
    }
    match text.matches(old).count() {
        0 => Err("`old` is not in the file: read it again, and copy the text exactly".to_owned()),
        1 => Ok((text.replacen(old, new, 1), 1)),
        count if all => Ok((text.replace(old, new), count)),
        count => Err(format!(
            "`old` is in the file {count} times: add lines around it until it occurs once, or set `all`"
        )),
    }
}

#[cfg(test)]
mod tests;
