//! Events of sessions.

use serde::{Deserialize, Serialize};

/// Something that happened in a session, as the stream of events tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionNotice {
    /// When it happened.
    pub at: String,
    /// The event.
    #[serde(flatten)]
    pub what: SessionNoticeKind,
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum SessionNoticeKind {
    /// Its labels or settings changed.
    Changed,
    /// It is deleted. The stream ends.
    Deleted,
    /// A machine started.
    MachineStarted {
        /// The sandbox.
        sandbox_id: String,
    },
    /// The machine ended.
    MachineEnded {
        /// The sandbox.
        sandbox_id: String,
    },
    /// A reset was confirmed: the machine is being ended.
    Reset,
    /// A window opened.
    WindowOpened {
        /// Its name.
        window: String,
    },
    /// A window closed.
    WindowClosed {
        /// Its name.
        window: String,
    },
    /// A command started.
    CommandStarted {
        /// Its window.
        window: String,
        /// The command line, with `***` in place of secrets.
        command: String,
    },
    /// A command ended.
    CommandEnded {
        /// Its window.
        window: String,
        /// `exited`, `cancelled`, or `lost` with its window or machine.
        outcome: String,
        /// The exit code, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Why it is lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The files of both sides stand in another way.
    Sync {
        /// `synced`, `behind` or `conflict`.
        state: String,
        /// How many files wait for the machine, or cannot get there.
        behind: usize,
        /// Whether there is a machine that is kept equal.
        connected: bool,
    },
    /// Files changed, from either side. Many files become several events.
    Files {
        /// Paths of files that were written.
        changed: Vec<String>,
        /// Paths of files that are gone.
        removed: Vec<String>,
    },
    /// A secret became a variable of the windows.
    SecretActivated {
        /// Its name.
        name: String,
    },
    /// A secret was taken from the windows.
    SecretDeactivated {
        /// Its name.
        name: String,
    },
}

/// Files of a session that changed, from either side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionFilesNotice {
    /// When they changed.
    pub at: String,
    /// Paths of files that were written.
    pub changed: Vec<String>,
    /// Paths of files that are gone.
    pub removed: Vec<String>,
}
