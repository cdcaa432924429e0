//! The audit log: who did what, to which thing, with which result.
//!
//! An event holds ids and names only, never a key, a token, a variable or a request's text.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::auth::{API_KEY_PREFIX, TeamSlug};
use crate::clock::Timestamp;
use crate::id::KeyId;

/// The longest id or name that an event holds.
const TARGET_MAX: usize = 128;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditResult {
    /// It was done.
    Ok,
    /// The caller may not.
    Denied,
    /// The request was wrong, or could not be carried out as things are.
    Refused,
    /// The server failed.
    Failed,
}

impl AuditResult {
    /// What an HTTP status means.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Denied,
            400..=499 => Self::Refused,
            500.. => Self::Failed,
            _ => Self::Ok,
        }
    }
}

/// Whose event it is. Each source has a file of its own, so that none can wash another's away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditSource {
    /// A caller with a key of this team.
    Team(TeamSlug),
    /// A caller without a valid key or token.
    Stranger,
    /// Traffic to a sandbox.
    Gateway,
    /// The server itself.
    Server,
}

/// One event. The names of its fields on disk are an interface: they are added to, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEvent {
    /// When it was answered.
    pub time: WrittenTime,
    /// What was done: `sandbox.create`, `key.delete`, …
    pub action: &'static str,
    /// How it ended.
    pub result: AuditResult,
    /// The status that was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The team of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamSlug>,
    /// The id of the key, which is no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The address of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The sandbox, template, snapshot or key that it was done to, as the caller named it or as it
    /// was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target: Vec<String>,
    /// The method and the pattern of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The id of the request, which is in the server's log too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// How long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "millis")]
    pub duration_ms: Option<Duration>,
}

/// A time that is written in RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenTime(pub Timestamp);

impl Serialize for WrittenTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[expect(clippy::ref_option, reason = "serde hands the field over by reference")]
fn millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let millis = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    millis.serialize(serializer)
}

impl AuditEvent {
    /// An event of which nothing more is known.
    #[must_use]
    pub fn new(time: Timestamp, action: &'static str, result: AuditResult) -> Self {
        Self {
            time: WrittenTime(time),
            action,
            result,
            status: None,
            team: None,
            key: None,
            address: None,
            target: Vec::new(),
            route: None,
            request: None,
            duration_ms: None,
        }
    }

    /// Adds what it was done to, unless that cannot be an id or a name: a caller may have put a
    /// secret in its place.
    #[must_use]
    pub fn on(mut self, target: &str) -> Self {
        if is_name(target) {
            self.target.push(target.to_owned());
        }
        self
    }
}

/// Whether a text may be the id or the name of something, and is no key.
fn is_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._:/@-".contains(&b);
    (1..=TARGET_MAX).contains(&text.len())
        && text.bytes().all(good)
        && !text.to_ascii_lowercase().contains(API_KEY_PREFIX)
}

/// Where events go. Never waits.
pub trait AuditLog: Send + Sync {
    /// Takes an event.
    fn record(&self, source: AuditSource, event: AuditEvent);
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAudit;

impl AuditLog for NoAudit {
    fn record(&self, _: AuditSource, _: AuditEvent) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_object_without_what_is_not_known() {
        let event = AuditEvent::new(
            Timestamp::from_unix_millis(1_700_000_000_123),
            "sandbox.pause",
            AuditResult::of_status(204),
        );
        let event = AuditEvent {
            status: Some(204),
            address: Some([127, 0, 0, 1].into()),
            duration_ms: Some(Duration::from_millis(12)),
            ..event.on("iabc")
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"time":"2023-11-14T22:13:20.123Z","action":"sandbox.pause","result":"ok","status":204,"address":"127.0.0.1","target":["iabc"],"duration_ms":12}"#
        );
    }

    #[test]
    fn what_may_be_a_secret_is_no_target() {
        let on = |text: &str| {
            let event = AuditEvent::new(Timestamp::default(), "x", AuditResult::Ok);
            event.on(text).target
        };
        assert_eq!(on("team/name:v1"), ["team/name:v1"]);
        for bad in [
            "", "a b", "a\nb", "x?k=v", "e2b_0123", "E2B_0123", "a/e2b_01",
        ] {
            assert_eq!(on(bad), [""; 0], "{bad:?}");
        }
        assert_eq!(on(&"a".repeat(TARGET_MAX + 1)), [""; 0]);
    }

    #[test]
    fn a_status_says_how_a_call_ended() {
        for (status, result) in [
            (101, AuditResult::Ok),
            (204, AuditResult::Ok),
            (401, AuditResult::Denied),
            (403, AuditResult::Denied),
            (404, AuditResult::Refused),
            (429, AuditResult::Refused),
            (500, AuditResult::Failed),
        ] {
            assert_eq!(AuditResult::of_status(status), result, "{status}");
        }
    }
}
