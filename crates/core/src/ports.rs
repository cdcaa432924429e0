//! The use cases as ports. The API crates call them, and a backend implements them.
//!
//! On one machine the backend is the engine. A backend that keeps its records elsewhere implements the
//! same traits, and the APIs serve from either without knowing which. The errors here say what failed
//! in the domain's own words: the text and the status of an answer belong to the API that gives it.

pub mod access;
pub mod backing;
pub mod builds;
pub mod catalogue;
pub mod create;
pub mod doctor;
pub mod external;
pub mod inside;
pub mod installation;
pub mod list;
pub mod observe;
pub mod pools;
pub mod resolve;
pub mod sandboxes;
pub mod sessions;
pub mod snapshots;
pub mod templates;

use std::sync::Arc;

use self::access::{Keys, Teams};
use self::builds::{Builds, Uploads};
use self::catalogue::TemplateCatalogue;
use self::doctor::Doctor;
use self::inside::SandboxAccess;
use self::installation::{Installation, InstalledImages};
use self::observe::{SandboxEvents, Telemetry};
use self::pools::Pools;
use self::sandboxes::Sandboxes;
use self::sessions::Sessions;
use self::sessions::files::SessionFiles;
use self::sessions::memories::SessionMemories;
use self::sessions::preview::Previews;
use self::sessions::secrets::SessionSecrets;
use self::snapshots::Snapshots;
use self::templates::Templates;
use crate::clock::Clock;

/// One implementation of every port. Cheap to clone.
#[derive(Clone)]
pub struct Ports {
    /// Operations on sandboxes.
    pub sandboxes: Arc<dyn Sandboxes>,
    /// Commands and files inside sandboxes.
    pub access: Arc<dyn SandboxAccess>,
    /// Snapshots.
    pub snapshots: Arc<dyn Snapshots>,
    /// Templates and their tags.
    pub templates: Arc<dyn Templates>,
    /// Builds of templates.
    pub builds: Arc<dyn Builds>,
    /// The archives that builds copy from.
    pub uploads: Arc<dyn Uploads>,
    /// The operator's catalogue.
    pub catalogue: Arc<dyn TemplateCatalogue>,
    /// Warm pools.
    pub pools: Arc<dyn Pools>,
    /// API keys.
    pub keys: Arc<dyn Keys>,
    /// Teams and their limits.
    pub teams: Arc<dyn Teams>,
    /// Sessions.
    pub sessions: Arc<dyn Sessions>,
    /// Secrets of sessions.
    pub session_secrets: Arc<dyn SessionSecrets>,
    /// Memories of sessions.
    pub session_memories: Arc<dyn SessionMemories>,
    /// The files of sessions.
    pub session_files: Arc<dyn SessionFiles>,
    /// Their previews.
    pub previews: Arc<dyn Previews>,
    /// Logs, metrics, events and use.
    pub telemetry: Arc<dyn Telemetry>,
    /// Events of sandboxes as they happen.
    pub sandbox_events: Arc<dyn SandboxEvents>,
    /// Images.
    pub images: Arc<dyn InstalledImages>,
    /// The installation.
    pub installation: Arc<dyn Installation>,
    /// Checks of the machine.
    pub doctor: Arc<dyn Doctor>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// The system has no randomness to give. A working machine has some once it has started.
#[derive(Debug, thiserror::Error)]
#[error("the system has no randomness: {0}")]
pub struct NoEntropy(pub String);

/// The backend does not serve this, and something else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not available here: {instead}")]
pub struct NotServed {
    /// The missing function.
    pub what: &'static str,
    /// The replacement, for people.
    pub instead: &'static str,
}
