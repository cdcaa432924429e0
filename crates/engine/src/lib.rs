//! The use cases of Shoal.
//!
//! Requests go down, facts come up, views go out, and only this crate writes state. A live
//! sandbox is a task with a mailbox ([`sandbox`](self)), so its operations never overlap; reads
//! come from what that task has published and never wait behind an operation. State is committed
//! before it is acted on, so a crash leaves a transient state, which [`Engine::recover`] resolves
//! by asking the driver what exists and feeding the answers through the same table.

mod access;
mod build_records;
mod builds;
mod catalogue;
mod config;
mod create;
mod drivers;
mod engine;
mod guest;
mod images;
mod plan;
mod pool;
mod ports;
mod random;
mod recover;
mod resolve;
mod sandboxes;
mod snapshots;
mod snapshotter;
mod store;
mod system_clock;
mod telemetry;
mod templates;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
mod uploads;
mod work;

pub use access::{FirstKeyError, KeyError, KeyLifetime, RuntimeForbidden, TeamError, TeamView};
pub use builds::{BUILDS_MAX, BuildError, BuildRequest, BuiltinError};
pub use catalogue::{CatalogueError, CatalogueInForce, RefusedEdit};
pub use config::{
    AllowedRuntimes, BuildOnDemand, CustomImages, Defaults, Endless, EngineConfig, Limits,
    UPLOAD_MAX,
};
pub use create::{CpuTarget, CreateError, Created, Idempotency, ResizeCreated, SandboxRequest};
pub use drivers::InvalidDrivers;
pub use engine::{Engine, EngineParts, OpenEngineError, SandboxError};
pub use guest::{EnvdGuest, Guest, InitSpec};
pub use pool::{MemberView, PoolFault, PoolSample, PoolView};
pub use recover::RecoverError;
pub use resolve::{Explained, Meaning, Resolved};
pub use sandboxes::{
    Connected, Infeasible, ListFilter, ListOrder, NameError, Page, PageToken, QuotaExceeded,
    Resize, TimeoutTooLong, Use,
};
pub use shoal_core::ports::sandboxes::FORKS_MAX;
pub use snapshots::{SnapshotError, SnapshotFilter, SnapshotNameError};
pub use snapshotter::{NewSnapshot, TakeError};
pub use store::SqliteStore;
pub use system_clock::SystemClock;
pub use telemetry::{
    EVENTS_MAX, EventKind, LogEntry, LogLevel, LogQuery, Sample, SandboxEvent, Starts, TeamSample,
};
pub use templates::{
    BuiltinDefinition, BuiltinTemplate, CreateTemplateError, PreparedBuiltin, TagError,
    TemplateError, TemplateRequest, Users,
};
pub use uploads::UploadError;
