//! The pool of an entry: sandboxes created ahead of time.

use std::num::NonZeroU16;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::command::Command;
use super::entry::{Entry, EntryResources};
use crate::quantity;

/// The largest pool.
pub(super) const SIZE_MAX: u32 = 1000;

/// How many sandboxes of an entry are kept ready, and how they are created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// How many sandboxes are kept.
    pub size: u32,
    /// The port that answers when a sandbox is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<NonZeroU16>,
    /// Runs once in a newly created sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_cmd: Option<Command>,
    /// Runs in a sandbox when it is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_cmd: Option<Command>,
    /// The resources of a sandbox until it is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<EntryResources>,
    /// How many stay ready while others are replaced; by default half of them (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready: Option<u32>,
    /// The maximum size under load (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// How long without a request until the pool shrinks to its size (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down_after: Option<Span>,
    /// Whether the processes of waiting sandboxes keep running; by default they are frozen (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_running: Option<bool>,
    /// How many waiting sandboxes stay in memory; the others are parked. By default all stay (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<u32>,
}

impl Entry {
    /// Whether members of this pool are interchangeable with those of `other`, given the same
    /// image.
    #[must_use]
    pub fn makes_what(&self, other: &Self) -> bool {
        self.member_digest("") == other.member_digest("")
    }

    /// A digest of everything that pool members are created from: the parts of this entry that
    /// matter before a claim, and the digest of the image or the build of the template.
    #[must_use]
    pub fn member_digest(&self, origin: &str) -> String {
        let mut made_from = self.clone();
        // A claim applies these, or they concern only the pool itself.
        made_from.description = String::new();
        made_from.metadata.clear();
        made_from.substrate = None;
        let start = made_from.start();
        made_from.port = None;
        if made_from.start() != start {
            // A start command makes the member ready when its port answers.
            made_from.port = self.port;
        }
        if let Some(pool) = &mut made_from.pool {
            *pool = Pool {
                size: 0,
                startup_cmd: None,
                min_ready: None,
                max: None,
                scale_down_after: None,
                hot: None,
                ..pool.clone()
            };
        }
        // Strings, numbers and maps with string keys always serialize.
        let text = serde_json::to_vec(&made_from).unwrap_or_default();
        let digest = Sha256::new()
            .chain_update(text)
            .chain_update([0])
            .chain_update(origin)
            .finalize();
        hex::encode(&digest[..16])
    }
}

/// A duration, as seconds or as text with a unit: `300`, `"5m"`. Shown as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Span {
    written: Written,
    time: Duration,
}

impl Span {
    /// The duration.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }
}

/// The ways to write a duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected seconds, or a time like \"5m\"")]
enum Written {
    Seconds(u64),
    Text(String),
}

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time: write seconds, or a time like \"5m\"")]
pub struct InvalidSpan(String);

impl TryFrom<Written> for Span {
    type Error = InvalidSpan;

    fn try_from(written: Written) -> Result<Self, InvalidSpan> {
        let time = match &written {
            Written::Seconds(seconds) => Some(Duration::from_secs(*seconds)),
            Written::Text(text) => quantity::duration(text),
        };
        match (time, written) {
            (Some(time), written) => Ok(Self { written, time }),
            (None, Written::Text(text)) => Err(InvalidSpan(text.chars().take(64).collect())),
            (None, Written::Seconds(seconds)) => Err(InvalidSpan(seconds.to_string())),
        }
    }
}

impl From<Span> for Written {
    fn from(span: Span) -> Self {
        span.written
    }
}
