//! Builds as they are stored, with what they say and leave.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::state::BuildState;
use crate::clock::Timestamp;
use crate::id::{BuildId, TeamId, TemplateId};
use crate::image::ImageName;
use crate::resources::Resources;
use crate::sandbox::SnapshotOrigin;
use crate::template::{RuntimeName, TemplateName};

/// Where a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildStatus {
    /// It was announced, and nobody has said yet what it does.
    Waiting,
    /// It is under way, or waits for its turn.
    Building,
    /// Sandboxes start from it.
    Ready,
    /// It has failed, or was cancelled.
    Error,
}

impl BuildStatus {
    /// The word for it on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Error => "error",
        }
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }
}

/// Which part of a build something belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Getting what it stands on.
    Base,
    /// A step of the last stage, counted from 1.
    Step(usize),
    /// A step of an earlier stage, counted from 1; 0 is getting what it stands on.
    Earlier {
        /// The stage, counted from 0.
        stage: usize,
        /// The step.
        step: usize,
    },
    /// Starting and saving what was built.
    Finalize,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::Step(number) => write!(f, "{number}"),
            Self::Earlier { stage, step: 0 } => write!(f, "stages/{stage}/base"),
            Self::Earlier { stage, step } => write!(f, "stages/{stage}/{step}"),
            Self::Finalize => f.write_str("finalize"),
        }
    }
}

/// Why a build has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFailure {
    /// What to tell.
    pub message: String,
    /// Where it was.
    pub part: Option<Part>,
    /// The line of the Dockerfile that it was about, when the client has said one.
    #[serde(default)]
    pub line: Option<u32>,
}

impl BuildFailure {
    /// A failure of the build as a whole.
    #[must_use]
    pub fn whole(message: &str) -> Self {
        Self {
            message: message.to_owned(),
            part: None,
            line: None,
        }
    }
}

/// What a finished build starts its sandboxes with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The image under it.
    pub image: ImageName,
    /// The OCI runtime that its memory is of.
    pub runtime: Option<RuntimeName>,
    /// Who commands run as.
    pub user: String,
    /// Where commands start.
    pub workdir: Option<String>,
    /// Environment of every process: the image's.
    pub env: BTreeMap<String, String>,
    /// What steps have set: for the start command, and for builds that stand on this one.
    pub build_env: BTreeMap<String, String>,
    /// What was saved of it.
    pub snapshot: SnapshotOrigin,
    /// What runs in it from its start on.
    pub start: Option<StartCommand>,
}

/// What runs in a template from its start on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    /// A line for a login shell.
    pub command: String,
    /// What says that it is ready, by ending with success.
    pub ready: Option<String>,
    /// Who runs the line, where and with which variables, if that is another template's to say: a
    /// command that is inherited runs as in the template that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_in: Option<BuildState>,
    /// The same of `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_in: Option<BuildState>,
}

impl StartCommand {
    /// A command of the template's own.
    #[must_use]
    pub fn new(command: String, ready: Option<String>) -> Self {
        Self {
            command,
            ready,
            command_in: None,
            ready_in: None,
        }
    }

    /// The same for templates that stand on one whose steps ended in `state`.
    #[must_use]
    pub fn inherited(mut self, state: &BuildState) -> Self {
        self.command_in.get_or_insert_with(|| state.clone());
        self.ready_in.get_or_insert_with(|| state.clone());
        self
    }

    /// The same with another ready command, which is the template's own.
    #[must_use]
    pub fn with_ready(self, ready: String) -> Self {
        Self {
            ready: Some(ready),
            ready_in: None,
            ..self
        }
    }
}

/// A build as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// Its id.
    pub id: BuildId,
    /// The template that it makes or renews.
    pub template: TemplateId,
    /// Whose it is.
    pub team: TeamId,
    /// What the template is called.
    pub name: TemplateName,
    /// The tags that it is to get.
    pub tags: Vec<String>,
    /// What its sandboxes may use.
    pub resources: Resources,
    /// Whether the template is builtin: all teams may use it and watch the build.
    #[serde(default, rename = "stock")]
    pub builtin: bool,
    /// Whether other teams may use the template, if this is the first build of it.
    #[serde(default)]
    pub public: bool,
    /// Where it is.
    pub status: BuildStatus,
    /// Why it has failed.
    #[serde(default)]
    pub failure: Option<BuildFailure>,
    /// What it has made.
    #[serde(default)]
    pub made: Option<Made>,
    /// When it was announced.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
}

/// How much a line of a build's log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// To whoever looks for a fault.
    Debug,
    /// To whoever waits.
    Info,
    /// To whoever may want to change something.
    Warn,
    /// To everybody: it is why the build failed.
    Error,
}

/// A line of a build's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When.
    pub at: Timestamp,
    /// How much it matters.
    pub level: LogLevel,
    /// What was said.
    pub message: String,
    /// In which part.
    pub part: Option<Part>,
}

/// Files as a step has left them, for the next build that does the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// What was done to come here, digested: 64 hexadecimal digits.
    pub key: String,
    /// Whose it is: no team stands on another's.
    pub team: TeamId,
    /// Where the files are.
    pub snapshot: SnapshotOrigin,
    /// The image under them.
    pub image: ImageName,
    /// Where steps on them start, of what was made fit for use: what it stands on need not say.
    #[serde(default)]
    pub workdir: Option<String>,
    /// When a build last stood on it.
    pub used_at: Timestamp,
}
