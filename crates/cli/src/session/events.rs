//! `shoal session events` and `shoal session file watch`.

use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shoal_protocol::native::{SessionFilesNotice, SessionNotice};

use super::path;
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// The id of the session.
    id: String,
    /// A file, or a directory with everything in it [default: all].
    path: Option<String>,
}

/// Prints a line for each event, until the session is deleted or the server stops.
pub(super) async fn follow(server: &Connection, id: &str, json: bool) -> Result<(), Failure> {
    let show = |notice: SessionNotice| {
        if json {
            return output::json(&notice);
        }
        output::line(&text(&notice)?)
    };
    listen(server, &format!("{}/events", path(id)), show).await
}

/// Prints the paths of files that change, until the session is deleted or the server stops.
pub(super) async fn watch(
    server: &Connection,
    args: &WatchArgs,
    json: bool,
) -> Result<(), Failure> {
    let show = |notice: SessionFilesNotice| {
        if json {
            return output::json(&notice);
        }
        let kinds = [("changed", notice.changed), ("removed", notice.removed)];
        for (kind, paths) in kinds {
            for path in paths {
                output::line(&format!("{kind} {}", output::plain(&path)))?;
            }
        }
        Ok(())
    };
    let mut url = format!("{}/files/watch", path(&args.id));
    if let Some(below) = &args.path {
        url.push_str(&format!("?path={}", encode(below)));
    }
    listen(server, &url, show).await
}

async fn listen<T: DeserializeOwned>(
    server: &Connection,
    url: &str,
    mut show: impl FnMut(T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let each = |name: &str, data: &str| match name {
        "ready" => Ok(()),
        "lagged" => {
            eprintln!("shoal: some events were missed");
            Ok(())
        }
        _ => show(crate::calls::read(data.as_bytes())?),
    };
    server.native_events(url, each).await
}

/// An event for people: its time, its type, and the rest by name.
fn text(notice: &SessionNotice) -> Result<String, Failure> {
    let what = serde_json::to_value(&notice.what);
    let what = what.map_err(|error| Failure::other(error.to_string()))?;
    let mut text = notice.at.clone();
    let kind = what.get("type").map(plain).unwrap_or_default();
    text.push_str(&format!(" {kind}"));
    let fields = what.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| *name != "type") {
        text.push_str(&format!(" {name}={}", plain(value)));
    }
    Ok(text)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => output::plain(text),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use shoal_protocol::native::SessionNoticeKind;

    use super::*;

    #[test]
    fn an_event_is_one_line_that_cannot_steer_the_terminal() {
        let notice = SessionNotice {
            at: "2026-01-01T00:00:00Z".to_owned(),
            what: SessionNoticeKind::CommandStarted {
                window: "main".to_owned(),
                command: "echo \u{1b}[2J".to_owned(),
            },
        };
        assert_eq!(
            text(&notice).unwrap(),
            "2026-01-01T00:00:00Z command_started command=echo \u{fffd}[2J window=main"
        );
    }
}
