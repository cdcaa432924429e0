//! The pool of an entry: sandboxes that are made ahead of time.

use std::num::NonZeroU16;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::command::Command;
use super::entry::{Entry, EntryResources};
use crate::quantity;

/// The largest pool.
pub(super) const SIZE_MAX: u32 = 1000;

/// How many sandboxes of an entry are kept ready, and how they are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// How many are kept.
    pub size: u32,
    /// The port that answers when one is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<NonZeroU16>,
    /// What is run once in one that was just made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_cmd: Option<Command>,
    /// What is run in one that is handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_cmd: Option<Command>,
    /// What one has of the machine until it is handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<EntryResources>,
    /// How many stay ready while others are replaced; half of them when nothing is said (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready: Option<u32>,
    /// How many there are at most when many are asked for (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// After what time without a request those above the size go (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down_after: Option<Span>,
    /// Whether the programs of those that wait go on; they are held still when nothing is said (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_running: Option<bool>,
}

impl Entry {
    /// Whether members of its pool are made as those of `other` are, over the same image.
    #[must_use]
    pub fn makes_what(&self, other: &Self) -> bool {
        self.member_digest("") == other.member_digest("")
    }

    /// A digest of what members of its pool are made from: this entry, as far as it matters before one
    /// is handed out, and the digest of the image, or the build of the template, that it means.
    #[must_use]
    pub fn member_digest(&self, origin: &str) -> String {
        let mut made_from = self.clone();
        // What is put right when one is handed out, or concerns the pool and none of its members.
        made_from.description = String::new();
        made_from.metadata.clear();
        let start = made_from.start();
        made_from.port = None;
        if made_from.start() != start {
            // What has started is ready when it answers there.
            made_from.port = self.port;
        }
        if let Some(pool) = &mut made_from.pool {
            *pool = Pool {
                size: 0,
                startup_cmd: None,
                min_ready: None,
                max: None,
                scale_down_after: None,
                ..pool.clone()
            };
        }
        // Texts, numbers and maps from texts always can be written.
        let text = serde_json::to_vec(&made_from).unwrap_or_default();
        let digest = Sha256::new()
            .chain_update(text)
            .chain_update([0])
            .chain_update(origin)
            .finalize();
        hex::encode(&digest[..16])
    }
}

/// A time, as seconds or as text with a unit: `300`, `"5m"`. Shown as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Span {
    written: Written,
    time: Duration,
}

impl Span {
    /// How long it is.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }
}

/// How a time may be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected seconds, or a time like \"5m\"")]
enum Written {
    Seconds(u64),
    Text(String),
}

/// A text that is no time.
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
