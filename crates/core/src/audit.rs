//! The audit log: who did what to which object, with which result.
//!
//! An event contains only ids and names, never a key, a token, a variable or a request's text.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::auth::{API_KEY_PREFIX, TeamSlug};
use crate::clock::Timestamp;
use crate::id::KeyId;

/// The longest id or name in an event.
const TARGET_MAX: usize = 128;

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditResult {
    /// The call succeeded.
    Ok,
    /// The caller lacked the permission.
    Denied,
    /// The request was invalid, or impossible in the current state.
    Refused,
    /// The server failed.
    Failed,
}

impl AuditResult {
    /// The result for an HTTP status.
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

/// The source of an event. Each source has its own file, so that none can flood out another's
/// events.
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

/// One event. The field names on disk are a stable interface: fields are added, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEvent {
    /// The time of the response.
    pub time: WrittenTime,
    /// The action: `sandbox.create`, `key.delete`, …
    pub action: &'static str,
    /// The result.
    pub result: AuditResult,
    /// The HTTP status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The team of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamSlug>,
    /// The id of the key, which is not secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The client's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The sandbox, template, snapshot or key, as the caller named it or as it was created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target: Vec<String>,
    /// The method and the route's pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The request id, which is in the server's log too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The duration in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "millis")]
    pub duration_ms: Option<Duration>,
}

/// A time, serialized as RFC 3339.
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
    /// An event with only these fields.
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

    /// Adds the object, unless it cannot be an id or a name: a caller may have sent a secret
    /// instead.
    #[must_use]
    pub fn on(mut self, target: &str) -> Self {
        if is_name(target) {
            self.target.push(target.to_owned());
        }
        self
    }
}

/// Whether a text can be an id or a name, and is not a key.
fn is_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._:/@-".contains(&b);
    (1..=TARGET_MAX).contains(&text.len())
        && text.bytes().all(good)
        && !text.to_ascii_lowercase().contains(API_KEY_PREFIX)
}

/// Receives events. Never waits.
pub trait AuditLog: Send + Sync {
    /// Records an event.
    fn record(&self, source: AuditSource, event: AuditEvent);
}

/// Discards all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAudit;

impl AuditLog for NoAudit {
    fn record(&self, _: AuditSource, _: AuditEvent) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_object_without_unknown_fields() {
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
    fn a_possible_secret_is_not_recorded() {
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
