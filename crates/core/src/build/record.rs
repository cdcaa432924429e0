//! Builds as they are stored, with their logs and results.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::state::BuildState;
use crate::clock::Timestamp;
use crate::id::{BuildId, TeamId, TemplateId};
use crate::image::ImageName;
use crate::log_level::LogLevel;
use crate::resources::Resources;
use crate::sandbox::SnapshotOrigin;
use crate::template::{RuntimeName, TemplateName};

/// The status of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildStatus {
    /// Announced; the client has not sent the plan yet.
    Waiting,
    /// Running, or queued.
    Building,
    /// Finished: sandboxes can start from it.
    Ready,
    /// Failed or cancelled.
    Error,
}

impl BuildStatus {
    /// The status on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Error => "error",
        }
    }

    /// Whether the status is final.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }
}

/// The part of a build that an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Preparing the base.
    Base,
    /// A step of the last stage, counted from 1.
    Step(usize),
    /// A step of an earlier stage, counted from 1. Step 0 prepares the stage's base.
    Earlier {
        /// The stage, counted from 0.
        stage: usize,
        /// The step.
        step: usize,
    },
    /// Starting and saving the result.
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

/// Why a build failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFailure {
    /// The error message for the client.
    pub message: String,
    /// The part that failed.
    pub part: Option<Part>,
    /// The failed step's line in the Dockerfile, if the client sent it.
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

/// The result of a build: how its sandboxes start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOutput {
    /// The base image.
    pub image: ImageName,
    /// The OCI runtime of the saved memory.
    pub runtime: Option<RuntimeName>,
    /// The user that commands run as.
    pub user: String,
    /// The working directory of commands.
    pub workdir: Option<String>,
    /// The image's environment, for every process.
    pub env: BTreeMap<String, String>,
    /// The variables that steps set, for the start command and for builds based on this one.
    pub build_env: BTreeMap<String, String>,
    /// The saved result.
    pub snapshot: SnapshotOrigin,
    /// The start command.
    pub start: Option<StartCommand>,
}

/// The start command of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    /// A command line for a login shell.
    pub command: String,
    /// The ready command: the template is ready when it exits successfully.
    pub ready: Option<String>,
    /// The user, directory and variables of `command`, if it is inherited. An inherited command
    /// runs as in the template that defined it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_in: Option<BuildState>,
    /// The same for `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_in: Option<BuildState>,
}

impl StartCommand {
    /// A start command that the template itself defines.
    #[must_use]
    pub fn new(command: String, ready: Option<String>) -> Self {
        Self {
            command,
            ready,
            command_in: None,
            ready_in: None,
        }
    }

    /// The inherited command, for templates based on one whose steps ended in `state`.
    #[must_use]
    pub fn inherited(mut self, state: &BuildState) -> Self {
        self.command_in.get_or_insert_with(|| state.clone());
        self.ready_in.get_or_insert_with(|| state.clone());
        self
    }

    /// The same start command with a ready command that the template itself defines.
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
    /// The template that it creates or updates.
    pub template: TemplateId,
    /// The owner.
    pub team: TeamId,
    /// The name of the template.
    pub name: TemplateName,
    /// The tags that the build gets.
    pub tags: Vec<String>,
    /// The resources of the template's sandboxes.
    pub resources: Resources,
    /// Whether the template is builtin: all teams may use it and watch the build.
    #[serde(default, rename = "stock")]
    pub builtin: bool,
    /// Whether other teams may use the template, if this is the first build of it.
    #[serde(default)]
    pub public: bool,
    /// The status.
    pub status: BuildStatus,
    /// Why it failed.
    #[serde(default)]
    pub failure: Option<BuildFailure>,
    /// The result.
    #[serde(default)]
    pub made: Option<BuildOutput>,
    /// When it was announced.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
}

/// A line of a build's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLogEntry {
    /// When it was logged.
    pub at: Timestamp,
    /// The level.
    pub level: LogLevel,
    /// The text.
    pub message: String,
    /// The part of the build.
    pub part: Option<Part>,
}

/// The build cache: the files after a step, reused by later builds with the same steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLayer {
    /// The digest of all inputs up to this step: 64 hexadecimal digits.
    pub key: String,
    /// The owner: teams do not share their caches.
    pub team: TeamId,
    /// The saved files.
    pub snapshot: SnapshotOrigin,
    /// The base image.
    pub image: ImageName,
    /// The working directory after provisioning, for a base that does not define one.
    #[serde(default)]
    pub workdir: Option<String>,
    /// When a build last used it.
    pub used_at: Timestamp,
}
