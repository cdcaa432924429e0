//! Bodies of Shoal's native API under `/api/v1`.
//!
//! Every response is an [`Envelope`] along with a real HTTP status. Times are RFC 3339 in UTC;
//! sizes are in bytes unless the name has another unit.

mod catalogue;
mod doctor;
mod image;
mod key;
mod pool;
mod sandbox;
mod sandbox_limits;
mod sandbox_objects;
mod session;
mod session_events;
mod session_files;
mod session_parts;
mod snapshot;
mod status;
mod team;
mod template;

use serde::{Deserialize, Serialize};

pub use self::catalogue::{
    Blueprint, CapturedParts, Catalogue, CatalogueWarning, IF_MATCH, RefusedCatalogue,
    ReplaceBlueprint, ReplaceCatalogue, ResolvedTemplate, ResolvedValue,
};
pub use self::doctor::Finding;
pub use self::image::{Image, ImageEvent, ImportImage, PullImage};
pub use self::key::{Key, MintedKey, NewKey};
pub use self::pool::{ClaimSeconds, Pool, PoolError, PoolMember, PoolSample, RemovedMembers};
pub use self::sandbox::{
    AskMetrics, CallLimit, Event, FileEntry, Items, LONGEST, NewSandbox, OpenShare, RanCommand,
    RateLimits, ResumeSandbox, RunCommand, Sandbox, SandboxLogs, SandboxNotice, SandboxUse, Share,
    TIMEOUT_SECONDS,
};
pub use self::sandbox_limits::{ResizeSandbox, SandboxResources, SandboxTokens};
pub use self::sandbox_objects::{SandboxObject, SandboxObjects};
pub use self::session::{
    ChangeSession, NewSession, ResetSession, Session, SessionCommand, SessionMachine,
    SessionOutput, SessionReset, SessionWindow,
};
pub use self::session_events::{SessionFilesNotice, SessionNotice, SessionNoticeKind};
pub use self::session_files::{MoveSessionFile, SessionFile, SessionFileCount, SessionSync};
pub use self::session_parts::{
    PutMemory, SessionMemory, SessionMemoryEntry, SessionSecret, SetSecret,
};
pub use self::snapshot::{ExportSnapshot, ExportedSnapshot, ImportSnapshot, ImportedSnapshot};
pub use self::status::{Runtime, Status, Totals};
pub use self::team::{NewTeamLimits, Team};
pub use self::template::{BuildDockerfile, BuildTemplate, DockerfileBuild, NewTemplate, Template};

/// Path prefix of all routes.
pub const PREFIX: &str = "/api/v1";

/// Code of a successful response.
pub const OK: &str = "0";

/// Content type of a response that streams [`ImageEvent`]s as JSON lines.
pub const NDJSON: &str = "application/x-ndjson";

/// Wrapper of every response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Envelope<T> {
    /// [`OK`], or the HTTP status as text.
    pub code: String,
    /// `ok`, or the error and its remedy.
    pub message: String,
    /// The error message again, where Agent-Sandbox's clients read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The data; absent in errors and empty responses.
    pub data: Option<T>,
}

impl<T> Envelope<T> {
    /// A success.
    #[must_use]
    pub fn ok(data: T) -> Self {
        Self {
            code: OK.to_owned(),
            message: "ok".to_owned(),
            error: None,
            data: Some(data),
        }
    }

    /// An error.
    #[must_use]
    pub fn failed(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code: status.to_string(),
            error: Some(message.clone()),
            message,
            data: None,
        }
    }
}

#[cfg(test)]
mod tests;
