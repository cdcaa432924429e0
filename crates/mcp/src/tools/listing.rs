//! `list_files`.

use std::fmt::Write;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shoal_core::ports::inside::{DirEntry, FileKind};

use super::files::FILE_TIME;
use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;
use crate::text::without_nul;

/// The most entries of one answer.
const ENTRIES_MAX: usize = 1000;

/// Arguments of `list_files`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The directory: the user's home when absent; a relative path is below it.
    path: Option<String>,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// A directory.
#[derive(Debug, Serialize, JsonSchema)]
struct Directory {
    /// The sandbox.
    sandbox: String,
    /// Its entries, one level deep.
    entries: Vec<Entry>,
    /// How many more it has.
    left_out: usize,
}

/// An entry of a directory.
#[derive(Debug, Serialize, JsonSchema)]
struct Entry {
    /// Its name.
    name: String,
    /// Its path.
    path: String,
    /// `file`, `directory` or `other`; of a link, the type of its target.
    kind: &'static str,
    /// Its size in bytes.
    size: u64,
}

impl From<DirEntry> for Entry {
    fn from(entry: DirEntry) -> Self {
        Self {
            name: entry.name,
            path: entry.path,
            kind: match entry.kind {
                FileKind::File => "file",
                FileKind::Directory => "directory",
                FileKind::Other => "other",
            },
            size: entry.size,
        }
    }
}

pub(super) fn list_files() -> Spec {
    let about = About(
        "list_files",
        "List files",
        "Lists a directory of the sandbox, one level deep.",
    );
    spec::<_, Directory, _>(&about, Effect::Reads, None, run)
}

async fn run(call: Arc<Call>, arguments: Arguments) -> Result<Reply, ToolError> {
    let path = arguments.path.unwrap_or_else(|| ".".to_owned());
    without_nul("path", &path)?;
    let named = arguments.sandbox.as_deref();
    let (held, client) = call.inside(named, None, FILE_TIME).await?;
    let entries = client.list_dir(path).await?;
    Ok(reply(held.1.id.to_string(), entries))
}

fn reply(sandbox: String, mut entries: Vec<DirEntry>) -> Reply {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let left_out = entries.len().saturating_sub(ENTRIES_MAX);
    entries.truncate(ENTRIES_MAX);
    let directory = Directory {
        sandbox,
        entries: entries.into_iter().map(Entry::from).collect(),
        left_out,
    };
    let mut text = String::new();
    for entry in &directory.entries {
        // Writing to a text cannot fail.
        let _ = match entry.kind {
            "directory" => writeln!(text, "{}/", entry.name),
            _ => writeln!(text, "{}  ({} bytes)", entry.name, entry.size),
        };
    }
    if text.is_empty() {
        text.push_str("[empty]");
    }
    if left_out > 0 {
        text += &format!("[… {left_out} more entries are left out …]");
    }
    Reply::new(text, &directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: String, kind: FileKind) -> DirEntry {
        DirEntry {
            path: format!("/{name}"),
            name,
            kind,
            link: false,
            size: 3,
            mode: 0o644,
        }
    }

    #[test]
    fn entries_are_sorted_and_too_many_are_counted() {
        let entries = vec![
            entry("b".into(), FileKind::File),
            entry("a".into(), FileKind::Directory),
        ];
        let few = reply("i1".to_owned(), entries);
        assert_eq!(few.content[0].as_text().unwrap().text, "a/\nb  (3 bytes)\n");
        let entries = (0..ENTRIES_MAX + 7).map(|n| entry(n.to_string(), FileKind::File));
        let many = reply("i1".to_owned(), entries.collect());
        assert_eq!(many.structured["left_out"], 7);
        assert_eq!(
            many.structured["entries"].as_array().unwrap().len(),
            ENTRIES_MAX
        );
    }
}
