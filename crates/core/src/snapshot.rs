//! Snapshots: saved states of sandboxes, from which others can start.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::Token;
use crate::clock::Timestamp;
use crate::id::{SandboxId, SnapshotId, TeamId, TemplateId};
use crate::sandbox::{SandboxSpec, SnapshotOrigin};
use crate::template::{DEFAULT_TAG, RuntimeName, TemplateName, TemplateRef};

/// The contents of a snapshot or a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contents {
    /// Files only: a sandbox boots from them.
    Filesystem,
    /// Memory and files: a sandbox resumes where it was.
    #[default]
    Memory,
}

impl Contents {
    /// Whether memory is included.
    #[must_use]
    pub fn has_memory(self) -> bool {
        self == Self::Memory
    }

    /// [`Contents::Memory`] when `memory` is true.
    #[must_use]
    pub fn with_memory(memory: bool) -> Self {
        if memory {
            Self::Memory
        } else {
            Self::Filesystem
        }
    }
}

/// A text that is not a list of contents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be kept: say `filesystem` or `memory,filesystem`")]
pub struct InvalidContents(String);

impl FromStr for Contents {
    type Err = InvalidContents;

    /// Parses OpenKruise's list: `filesystem` or `memory,filesystem`, in either order. Its item
    /// `ip` is ignored: an address belongs to an execution, not to a snapshot.
    fn from_str(text: &str) -> Result<Self, InvalidContents> {
        let (mut memory, mut filesystem) = (false, false);
        for word in text.split(',').map(str::trim) {
            match word {
                "filesystem" => filesystem = true,
                "memory" => memory = true,
                "ip" => {}
                _ => return Err(InvalidContents(text.chars().take(64).collect())),
            }
        }
        // Memory without its files would have open files that do not exist.
        if filesystem {
            Ok(Self::with_memory(memory))
        } else {
            Err(InvalidContents(text.chars().take(64).collect()))
        }
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filesystem => "filesystem",
            Self::Memory => "memory,filesystem",
        })
    }
}

/// The actual contents of a save, and its cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The contents.
    pub contents: Contents,
    /// The OCI runtime of the sandbox: no other can restore the memory.
    pub runtime: RuntimeName,
    /// How long the sandbox was frozen.
    pub freeze: Duration,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of the sandbox's own files, most of which may be shared with others.
    pub file_bytes: u64,
    /// How the files were copied, for people.
    pub copied: String,
}

/// A stored snapshot: one version, with its tags.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// The id of its data.
    pub id: SnapshotId,
    /// The template id for users: the same for all tags and versions of a name.
    pub template: TemplateId,
    /// The first tag of this version.
    pub tag: String,
    /// Its other tags, each with the time when it was given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more_tags: BTreeMap<String, Timestamp>,
    /// Its name, if it has one.
    pub name: Option<TemplateName>,
    /// The owner.
    pub team: TeamId,
    /// The sandbox that it was taken of.
    pub source: SandboxId,
    /// The specification of that sandbox, which clones inherit unless a request overrides it.
    pub spec: SandboxSpec,
    /// The token that the envd in the memory requires until a clone has set its own.
    pub guest_token: Option<Token>,
    /// The saved contents.
    pub saved: Saved,
    /// When it was taken.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Its id for users, where the backend has ids of another form. It has no name and no tags then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_id: Option<String>,
}

impl SnapshotRecord {
    /// The figures of the save; none from a backend that does not measure them.
    #[must_use]
    pub fn measured(&self) -> Option<&Saved> {
        self.backend_id.is_none().then_some(&self.saved)
    }

    /// The user's name for this version: `[<namespace>/]<name or id>:<tag>`.
    #[must_use]
    pub fn reference(&self, namespace: &str) -> String {
        match (&self.name, &self.backend_id) {
            (Some(name), _) => format!("{namespace}/{name}:{}", self.tag),
            (None, Some(id)) => id.clone(),
            (None, None) => format!("{}:{}", self.template, self.tag),
        }
    }

    /// Whether `reference`, without its namespace, refers to this version.
    #[must_use]
    pub fn is_meant_by(&self, reference: &TemplateRef) -> bool {
        let tag = reference.tag.as_deref().unwrap_or(DEFAULT_TAG);
        let by_id = self.template.as_str() == reference.name.as_str()
            || self.backend_id.as_deref() == Some(reference.name.as_str());
        // In a backend with ids of its own, each version has one.
        if by_id && self.backend_id.is_some() && tag == DEFAULT_TAG {
            return true;
        }
        (by_id || self.name.as_ref() == Some(&reference.name)) && self.has_tag(tag)
    }

    /// Whether `tag` is one of its tags.
    #[must_use]
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tag == tag || self.more_tags.contains_key(tag)
    }

    /// All its tags, each with the time when it was given.
    pub fn tags(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        let more = self.more_tags.iter().map(|(tag, at)| (tag.as_str(), *at));
        std::iter::once((self.tag.as_str(), self.created_at)).chain(more)
    }

    /// The same snapshot with more tags, given at `now`.
    #[must_use]
    pub fn with_tags(&self, tags: &[String], now: Timestamp) -> Self {
        let mut tagged = self.clone();
        for tag in tags {
            if !tagged.has_tag(tag) {
                tagged.more_tags.insert(tag.clone(), now);
            }
        }
        tagged
    }

    /// The same snapshot without a tag; none when it has no other.
    #[must_use]
    pub fn without_tag(&self, tag: &str) -> Option<Self> {
        let mut rest = self.clone();
        rest.more_tags.remove(tag);
        if rest.tag == tag {
            rest.tag = rest.more_tags.pop_first()?.0;
        }
        Some(rest)
    }

    /// The default specification of a clone.
    #[must_use]
    pub fn spec_of_clone(&self) -> SandboxSpec {
        SandboxSpec {
            template: self.template.clone(),
            template_name: self.name.as_ref().map(ToString::to_string),
            template_key: None,
            snapshot: Some(SnapshotOrigin {
                id: self.id,
                memory: self.saved.contents.has_memory(),
                guest_token: self.guest_token.clone(),
            }),
            ..self.spec.clone()
        }
    }

    /// Whether it has expired.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_parsed_in_openkruise_notation() {
        for (text, contents) in [
            ("filesystem", Contents::Filesystem),
            ("memory,filesystem", Contents::Memory),
            (" filesystem , memory ", Contents::Memory),
            ("ip,filesystem", Contents::Filesystem),
        ] {
            assert_eq!(text.parse(), Ok(contents), "{text}");
        }
        for bad in ["", "memory", "ip", "filesystem,disk", "Filesystem"] {
            assert!(bad.parse::<Contents>().is_err(), "{bad}");
        }
        assert_eq!(Contents::Memory.to_string().parse(), Ok(Contents::Memory));
    }
}
