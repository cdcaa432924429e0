//! Resources: the files of sandboxes, and their logs.

use std::fmt::Write;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData as McpError;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;
use shoal_core::ports::inside::FileKind;
use shoal_core::ports::observe::LogQuery;

use crate::error::ToolError;
use crate::session::Held;
use crate::tools::{Call, whole};

/// The scheme of files: `sandbox://{id}/{path}`.
const FILES: &str = "sandbox://";

/// The scheme of logs: `sandbox-logs://{id}`.
const LOGS: &str = "sandbox-logs://";

/// The most files of one list.
const FILES_MAX: usize = 200;

/// The latest entries of a log that are read.
const ENTRIES: usize = 1000;

/// The most of a log that is read, in bytes.
const LOG_MAX: usize = 256 << 10;

/// The characters that must be escaped in the path of a URI.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'{')
    .add(b'}');

/// The target of a URI.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    /// A file of a sandbox, by its absolute path.
    File { sandbox: String, path: String },
    /// The log of a sandbox.
    Log { sandbox: String },
}

/// Parses a URI; none for one that this server does not have.
fn parse(uri: &str) -> Option<Named> {
    if let Some(sandbox) = uri.strip_prefix(LOGS) {
        let sandbox = sandbox.to_owned();
        return (!sandbox.is_empty()).then_some(Named::Log { sandbox });
    }
    let (sandbox, path) = uri.strip_prefix(FILES)?.split_once('/')?;
    let path = percent_decode_str(path).decode_utf8().ok()?;
    if sandbox.is_empty() || path.is_empty() || path.contains('\0') {
        return None;
    }
    Some(Named::File {
        sandbox: sandbox.to_owned(),
        path: format!("/{path}"),
    })
}

fn uri_of(sandbox: impl std::fmt::Display, path: &str) -> String {
    let path = utf8_percent_encode(path.trim_start_matches('/'), ESCAPED);
    format!("{FILES}{sandbox}/{path}")
}

/// The templates of all resources.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("sandbox://{id}/{+path}", "file")
            .with_title("A file of a sandbox")
            .with_description("A file by its absolute path, in a sandbox of your team."),
        ResourceTemplate::new("sandbox-logs://{id}", "logs")
            .with_title("The log of a sandbox")
            .with_description("The latest entries of the log of a sandbox of your team.")
            .with_mime_type("text/plain"),
    ]
}

/// The log of the session's sandbox, and the files in its home directory. Creates no sandbox.
pub(crate) async fn list(call: &Call) -> Vec<Resource> {
    if call.session.has().is_none() {
        return Vec::new();
    }
    // It may have ended, or be paused.
    let Ok(held) = call.session.existing(&call.ports).await else {
        return Vec::new();
    };
    let id = held.1.id.clone();
    let log = Resource::new(format!("{LOGS}{id}"), "logs")
        .with_title("The log of this session's sandbox")
        .with_mime_type("text/plain");
    let mut resources = vec![log];
    let Ok(client) = call.ports.access.open(&held.0, None).await else {
        return resources;
    };
    let entries = client.list_dir(".".to_owned()).await.unwrap_or_default();
    let files = entries
        .into_iter()
        .filter(|entry| entry.kind == FileKind::File);
    resources.extend(
        files
            .take(FILES_MAX)
            .map(|entry| Resource::new(uri_of(&id, &entry.path), entry.name).with_size(entry.size)),
    );
    resources
}

/// Reads a resource.
pub(crate) async fn read(call: &Call, uri: &str) -> Result<ReadResourceResult, McpError> {
    let named = parse(uri).ok_or_else(|| unknown(uri, "this server has no such resource"))?;
    let contents = match named {
        Named::File { sandbox, path } => file(call, uri, &sandbox, &path).await,
        Named::Log { sandbox } => log(call, uri, &sandbox).await,
    };
    let contents = contents.map_err(|error| unknown(uri, error.message))?;
    Ok(ReadResourceResult::new(vec![contents]))
}

fn unknown(uri: &str, why: impl Into<String>) -> McpError {
    McpError::resource_not_found(why.into(), Some(json!({ "uri": uri })))
}

async fn file(
    call: &Call,
    uri: &str,
    sandbox: &str,
    path: &str,
) -> Result<ResourceContents, ToolError> {
    let (permit, _): Held = call.named(sandbox).await?;
    let client: Arc<_> = call.ports.access.open(&permit, None).await?;
    let bytes = whole(client.as_ref(), path).await?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => ResourceContents::text(text, uri),
        Ok(text) => blob(text.as_bytes(), uri),
        Err(other) => blob(other.as_bytes(), uri),
    })
}

fn blob(bytes: &[u8], uri: &str) -> ResourceContents {
    ResourceContents::blob(BASE64_STANDARD.encode(bytes), uri)
        .with_mime_type("application/octet-stream")
}

async fn log(call: &Call, uri: &str, sandbox: &str) -> Result<ResourceContents, ToolError> {
    let id = sandbox
        .parse()
        .map_err(|error| ToolError::invalid(format_args!("{error}")))?;
    let query = LogQuery {
        backward: true,
        limit: ENTRIES,
        ..LogQuery::default()
    };
    let principal = &call.caller.principal;
    let entries = call.ports.telemetry.logs(principal, &id, query).await?;
    let mut lines = Vec::new();
    let mut size = 0;
    for entry in entries {
        let mut line = format!("{} {} {}", entry.at, entry.level.as_str(), entry.message);
        for (name, value) in &entry.fields {
            // Writing to a text cannot fail.
            let _ = write!(line, " {name}={value}");
        }
        size += line.len();
        if size > LOG_MAX {
            lines.push("[… earlier entries are left out …]".to_owned());
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    Ok(ResourceContents::text(lines.join("\n"), uri))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(sandbox: &str, path: &str) -> Option<Named> {
        Some(Named::File {
            sandbox: sandbox.to_owned(),
            path: path.to_owned(),
        })
    }

    #[test]
    fn a_uri_names_a_file_or_a_log() {
        assert_eq!(
            parse("sandbox://i1/etc/os-release"),
            file("i1", "/etc/os-release")
        );
        assert_eq!(parse("sandbox://i1/a%20b%3F"), file("i1", "/a b?"));
        let sandbox = "i1".to_owned();
        assert_eq!(parse("sandbox-logs://i1"), Some(Named::Log { sandbox }));
        for bad in [
            "",
            "sandbox://",
            "sandbox://i1",
            "sandbox://i1/",
            "sandbox:///x",
            "file:///x",
            "sandbox-logs://",
            "sandbox://i1/%00",
            "sandbox://i1/%ff",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_uri_of_a_path_names_it() {
        for path in ["/a", "/a b", "/a?b#c%20", "/ä/{x}"] {
            assert_eq!(parse(&uri_of("i1", path)), file("i1", path), "{path}");
        }
    }
}
