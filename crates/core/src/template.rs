//! Templates, which sandboxes start from, and their names.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::build::{BuildOutput, StartCommand};
use crate::clock::Timestamp;
use crate::id::{BuildId, TeamId, TemplateId};
use crate::image::ImageName;
use crate::resources::{MilliCpu, Resources};
use crate::sandbox::SnapshotOrigin;
use crate::snapshot::Contents;

/// The longest accepted template name.
pub const NAME_MAX: usize = 128;

/// The default tag.
pub const DEFAULT_TAG: &str = "default";

/// The name of an OCI runtime: `^[a-z0-9-]{1,32}$`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RuntimeName(String);

/// A text that is not a runtime's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid runtime name {0:?}: 1 to 32 of a-z, 0-9 and -")]
pub struct InvalidRuntimeName(String);

impl RuntimeName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RuntimeName {
    type Err = InvalidRuntimeName;

    fn from_str(text: &str) -> Result<Self, InvalidRuntimeName> {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=32).contains(&text.len()) && text.bytes().all(good) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidRuntimeName(text.chars().take(64).collect()))
        }
    }
}

impl TryFrom<String> for RuntimeName {
    type Error = InvalidRuntimeName;

    fn try_from(text: String) -> Result<Self, InvalidRuntimeName> {
        text.parse()
    }
}

impl From<RuntimeName> for String {
    fn from(name: RuntimeName) -> Self {
        name.0
    }
}

impl fmt::Display for RuntimeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a template, without its namespace: `^[a-z0-9_-]{1,128}$`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateName(String);

impl TemplateName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TemplateName {
    type Err = InvalidTemplateRef;

    fn from_str(text: &str) -> Result<Self, InvalidTemplateRef> {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(good) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidTemplateRef::new(text))
        }
    }
}

impl TryFrom<String> for TemplateName {
    type Error = InvalidTemplateRef;

    fn try_from(text: String) -> Result<Self, InvalidTemplateRef> {
        text.parse()
    }
}

impl From<TemplateName> for String {
    fn from(name: TemplateName) -> Self {
        name.0
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is not a reference to a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid template reference {0:?}: expected [namespace/]name[:tag] of a-z, 0-9, _ and -")]
pub struct InvalidTemplateRef(String);

impl InvalidTemplateRef {
    fn new(text: &str) -> Self {
        Self(text.chars().take(NAME_MAX).collect())
    }
}

/// A user's reference to a template: `[namespace/]name[:tag]`, where `name` may be an id.
///
/// Case and surrounding blanks are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateRef {
    /// The team's slug, if given.
    pub namespace: Option<String>,
    /// A name or an id.
    pub name: TemplateName,
    /// The tag, if given.
    pub tag: Option<String>,
}

impl TryFrom<String> for TemplateRef {
    type Error = InvalidTemplateRef;

    fn try_from(text: String) -> Result<Self, InvalidTemplateRef> {
        text.parse()
    }
}

impl From<TemplateRef> for String {
    fn from(reference: TemplateRef) -> Self {
        reference.to_string()
    }
}

impl FromStr for TemplateRef {
    type Err = InvalidTemplateRef;

    fn from_str(text: &str) -> Result<Self, InvalidTemplateRef> {
        let refused = || InvalidTemplateRef::new(text);
        if text.len() > 4 * NAME_MAX {
            return Err(refused());
        }
        let lower = text.trim().to_ascii_lowercase();
        let (path, tag) = match lower.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (lower.as_str(), None),
        };
        let (namespace, name) = match path.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, path),
        };
        let tag_good = |t: &str| {
            let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            (1..=NAME_MAX).contains(&t.len()) && t.bytes().all(good) && Uuid::try_parse(t).is_err()
        };
        if !tag.is_none_or(tag_good)
            || namespace.is_some_and(|n| n.parse::<TemplateName>().is_err())
        {
            return Err(refused());
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.parse().map_err(|_| refused())?,
            tag: tag.map(str::to_owned),
        })
    }
}

impl fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}", self.name)?;
        match &self.tag {
            Some(tag) => write!(f, ":{tag}"),
            None => Ok(()),
        }
    }
}

/// The template of a request: a [`TemplateRef`], or another name that an entry of the catalogue may
/// match, such as `faas-code-python.3.11`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateKey(String);

impl TemplateKey {
    /// The name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as a reference.
    ///
    /// # Errors When it is not a reference.
    pub fn reference(&self) -> Result<TemplateRef, InvalidTemplateRef> {
        self.0.parse()
    }
}

impl FromStr for TemplateKey {
    type Err = InvalidTemplateRef;

    fn from_str(text: &str) -> Result<Self, InvalidTemplateRef> {
        let trimmed = text.trim();
        let good = |b: u8| b.is_ascii_alphanumeric() || b"._-:/".contains(&b);
        if (1..=4 * NAME_MAX).contains(&trimmed.len()) && trimmed.bytes().all(good) {
            Ok(Self(trimmed.to_owned()))
        } else {
            Err(InvalidTemplateRef::new(text))
        }
    }
}

impl From<TemplateRef> for TemplateKey {
    fn from(reference: TemplateRef) -> Self {
        Self(reference.to_string())
    }
}

impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An image with the settings that its sandboxes start with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// Its id, the same for all builds.
    pub id: TemplateId,
    /// The owner; `None` for a builtin template, which every team may use.
    pub team: Option<TeamId>,
    /// Its names.
    pub names: Vec<TemplateName>,
    /// The current build.
    pub build: BuildId,
    /// The image its root file system comes from.
    pub image: ImageName,
    /// The default limits of its sandboxes.
    pub resources: Resources,
    /// The OCI runtime; the driver's default if `None`.
    pub runtime: Option<RuntimeName>,
    /// The user that commands run as.
    pub user: String,
    /// The working directory of commands; the user's home if `None`.
    pub workdir: Option<String>,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// The default contents of a pause or a snapshot of its sandboxes.
    #[serde(default)]
    pub persistent: Contents,
    /// The highest processor limit of its running sandboxes; by default a multiple of their own
    /// limit.
    #[serde(default)]
    pub max_cpu: Option<MilliCpu>,
    /// The result of its build; `None` if its sandboxes start from the image alone.
    #[serde(default)]
    pub snapshot: Option<SnapshotOrigin>,
    /// The variables that its build's steps set, for the start command and for builds based on it.
    #[serde(default)]
    pub build_env: BTreeMap<String, String>,
    /// The start command of its sandboxes.
    #[serde(default)]
    pub start: Option<StartCommand>,
    /// The build of each tag; empty for a template without builds, which has only the default tag.
    #[serde(default)]
    pub tags: BTreeMap<String, Tagged>,
    /// Whether other teams may use it.
    pub public: bool,
    /// Whether an operator created it for all teams. While it is public, its plain name refers to
    /// it for every team that has no template of that name.
    #[serde(default)]
    pub promoted: bool,
    /// A one-line description.
    pub description: String,
    /// When it was first created.
    pub created_at: Timestamp,
    /// When its current build was created.
    pub updated_at: Timestamp,
}

/// The build of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagged {
    /// The build.
    pub build: BuildId,
    /// When the tag was assigned.
    pub at: Timestamp,
}

impl Template {
    /// A public template with an image and default settings.
    #[must_use]
    pub fn over(id: TemplateId, build: BuildId, image: ImageName, now: Timestamp) -> Self {
        Self {
            id,
            team: None,
            names: Vec::new(),
            build,
            image,
            resources: Resources::default(),
            runtime: None,
            user: "root".to_owned(),
            workdir: None,
            env: BTreeMap::new(),
            persistent: Contents::default(),
            max_cpu: None,
            snapshot: None,
            build_env: BTreeMap::new(),
            start: None,
            tags: BTreeMap::new(),
            public: false,
            promoted: false,
            description: String::new(),
            created_at: now,
            updated_at: now,
        }
    }

    /// The same template in another of its builds.
    #[must_use]
    pub fn as_built(&self, build: BuildId, resources: Resources, made: &BuildOutput) -> Self {
        Self {
            build,
            resources,
            image: made.image.clone(),
            runtime: made.runtime.clone(),
            user: made.user.clone(),
            workdir: made.workdir.clone(),
            env: made.env.clone(),
            snapshot: Some(made.snapshot.clone()),
            build_env: made.build_env.clone(),
            start: made.start.clone(),
            ..self.clone()
        }
    }

    /// Whether `team` may start sandboxes from it.
    #[must_use]
    pub fn is_visible_to(&self, team: TeamId) -> bool {
        self.public || self.team.is_none_or(|owner| owner == team)
    }
}

#[cfg(test)]
mod tests;
