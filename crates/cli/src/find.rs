//! Finds a sandbox by id, id prefix or name.

use std::time::Duration;

use serde_json::Value;
use shoal_core::similar::nearest;
use shoal_protocol::native::{Event, Items};

use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output;
use crate::sandbox::all_sandboxes;

/// The length of ids.
const ID_LENGTH: usize = 21;

/// The minimum length of an id prefix.
const BEGINNING_MIN: usize = 4;

/// Attempts and interval for finding the end event of an unlisted sandbox: the server publishes it
/// after the cleanup.
const END_TRIES: usize = 25;
const END_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The label with a sandbox's name.
pub(crate) const NAME_LABEL: &str = "shoal/name";

/// A candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    id: String,
    name: Option<String>,
}

impl Connection {
    /// The id of the sandbox `said`.
    ///
    /// # Errors
    /// When none or several match.
    pub(crate) async fn sandbox_id(&self, said: &str) -> Result<String, Failure> {
        if is_whole(said) {
            return Ok(said.to_owned());
        }
        let known = self.known().await?;
        match meant(said, &known).as_slice() {
            [one] => Ok((*one).to_owned()),
            [] => Err(missing(said, &known)),
            several => Err(
                Failure::usage(format!("{said:?} matches {} sandboxes", several.len()))
                    .with_hint(format!("They are {}.", several.join(", "))),
            ),
        }
    }

    /// The failure for an unknown sandbox: how it ended, or a similar one.
    pub(crate) async fn no_sandbox(&self, said: &str) -> Failure {
        if is_whole(said)
            && let Some(ended) = self.how_it_ended(said).await
        {
            return ended;
        }
        match self.known().await {
            Ok(known) => missing(said, &known),
            Err(failure) => failure,
        }
    }

    /// The sandboxes of the team.
    async fn known(&self) -> Result<Vec<Known>, Failure> {
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        let all = all_sandboxes(self, "limit=100").await?;
        let known = all.iter().filter_map(|sandbox| {
            Some(Known {
                id: text(&sandbox["sandboxID"])?,
                name: text(&sandbox["metadata"][NAME_LABEL]),
            })
        });
        Ok(known.collect())
    }

    /// The end event of a sandbox. Waits for it if the server knows other events of the sandbox; none
    /// if it knows nothing.
    async fn end_of(&self, id: &str) -> Option<Event> {
        let path = format!("/events?sandbox={}&limit=1", encode(id));
        for _ in 0..END_TRIES {
            let latest: Items<Event> = self.native_get(&path).await.ok()?;
            let event = latest.items.into_iter().next()?;
            if event.kind == "killed" {
                return Some(event);
            }
            tokio::time::sleep(END_RETRY_INTERVAL).await;
        }
        None
    }

    /// The server's events of a sandbox.
    async fn how_it_ended(&self, id: &str) -> Option<Failure> {
        let event = self.end_of(id).await?;
        let ago = output::ago(&event.at);
        let reason = event.detail.get("reason").map(String::as_str);
        let why = match reason {
            Some("TimedOut") => "its time was up",
            Some("Failed") => "it failed",
            Some("Operator") => "an operator ended it",
            _ => "it was killed",
        };
        let failure = Failure::not_found(format!("sandbox {id} ended {ago} ago: {why}"));
        Some(match reason {
            Some("TimedOut") => failure.with_hint(
                "create, fork and resume take --timeout; `shoal sandbox timeout ID TIME` changes \
                 the time of one that runs.",
            ),
            _ => failure.with_hint(format!("`shoal sandbox logs {id}` shows what it printed.")),
        })
    }
}

/// Whether a text has the form of a complete id.
fn is_whole(said: &str) -> bool {
    // Older clients append a client id.
    let id = said.split('-').next().unwrap_or_default();
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    id.len() == ID_LENGTH && id.starts_with('i') && id.bytes().all(good)
}

/// The matching ids. Ids and names precede id prefixes.
fn meant<'a>(said: &str, known: &'a [Known]) -> Vec<&'a str> {
    let called = |known: &&Known| {
        // The default name is `sbx-TEMPLATE-ID`.
        let unnamed = known.name.is_none() && said.starts_with("sbx-");
        known.id == said
            || known.name.as_deref() == Some(said)
            || unnamed && said.rsplit('-').next() == Some(&known.id)
    };
    if let Some(one) = known.iter().find(called) {
        return vec![&one.id];
    }
    if said.len() < BEGINNING_MIN {
        return Vec::new();
    }
    let ids = known.iter().map(|known| known.id.as_str());
    ids.filter(|id| id.starts_with(said)).collect()
}

fn missing(said: &str, known: &[Known]) -> Failure {
    let failure = Failure::not_found(format!("no sandbox {said:?}"));
    let names = known.iter().filter_map(|known| known.name.as_deref());
    let names = names.chain(known.iter().map(|known| known.id.as_str()));
    match nearest(said, names) {
        Some(near) => failure.with_hint(format!("Did you mean {near}?")),
        None if known.is_empty() => failure.with_hint("The team has no sandboxes now."),
        None => failure.with_hint("`shoal sandbox ls` lists the sandboxes of the team."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Known> {
        let named = |id: &str, name: Option<&str>| Known {
            id: id.to_owned(),
            name: name.map(str::to_owned),
        };
        vec![
            named("iabcdefghij0123456789", Some("box")),
            named("iabcxyzxyz01234567890", None),
            named("iqqqqqqqqqqqqqqqqqqqq", Some("iabc")),
        ]
    }

    #[test]
    fn a_sandbox_is_named_by_its_id_its_name_or_the_beginning_of_its_id() {
        let known = known();
        for (said, found) in [
            ("box", vec!["iabcdefghij0123456789"]),
            ("iabcd", vec!["iabcdefghij0123456789"]),
            ("iabcxyzxyz01234567890", vec!["iabcxyzxyz01234567890"]),
            (
                "sbx-base-iabcxyzxyz01234567890",
                vec!["iabcxyzxyz01234567890"],
            ),
            // A name goes before beginnings.
            ("iabc", vec!["iqqqqqqqqqqqqqqqqqqqq"]),
            // Too short to end a sandbox by.
            ("iqq", vec![]),
            ("bo", vec![]),
            ("other", vec![]),
        ] {
            assert_eq!(meant(said, &known), found, "{said}");
        }
        let two = [known[0].clone(), known[1].clone()];
        assert_eq!(meant("iabc", &two).len(), 2);
    }

    #[test]
    fn a_whole_id_needs_no_list() {
        assert!(is_whole("iabcdefghij0123456789"));
        assert!(is_whole("iabcdefghij0123456789-6532622b"));
        for not in [
            "",
            "iabc",
            "box",
            "xabcdefghij0123456789",
            "iABCdefghij0123456789",
        ] {
            assert!(!is_whole(not), "{not}");
        }
    }

    #[test]
    fn what_is_near_is_offered_by_name_too() {
        let shown = |said: &str| format!("{:?}", missing(said, &known()));
        assert!(shown("boxx").contains("Did you mean box?"));
        assert!(shown("nothing").contains("shoal sandbox ls"));
    }
}
