//! The use cases of Shoal.
//!
//! Requests go down, facts come up, views go out, and only this crate writes state. A live
//! sandbox is a task with a mailbox ([`sandbox`](self)), so its operations never overlap; reads
//! come from what that task has published and never wait behind an operation. State is committed
//! before it is acted on, so a crash leaves a transient state, which [`Engine::recover`] resolves
//! by asking the driver what exists and feeding the answers through the same table.

mod build;
mod builds;
mod catalog;
mod catalogue;
mod claimed_name;
mod config;
mod connect;
mod create;
mod create_template;
mod deadlines;
mod engine;
mod entropy;
mod events;
mod exported;
mod fork;
mod guest;
mod inside;
mod keys;
mod kill;
mod list;
mod logs;
mod metrics;
mod names;
mod pause;
mod pool;
mod private_images;
mod recover;
mod remove_image;
mod resize;
mod resolve;
mod room;
mod rotate_tokens;
mod runtimes;
mod sandbox;
mod set_network;
mod set_timeout;
mod snapshot;
mod snapshots;
mod stock;
mod store;
mod system_clock;
mod tags;
mod tasks;
mod team_limits;
mod team_metrics;
mod teams;
mod template_names;
mod templates;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
mod uploads;
mod usage;
mod wake;

pub use build::{BUILDS_MAX, BuildError, NewBuild};
pub use catalogue::{CatalogueError, CatalogueInForce, RefusedEdit};
pub use claimed_name::SnapshotNameError;
pub use config::{BuildOnDemand, CustomImages, Defaults, Endless, EngineConfig, Limits};
pub use connect::Connected;
pub use create::{CpuTarget, CreateError, Created, Idempotency, NewSandbox, ResizeCreated};
pub use create_template::{CreateTemplateError, NewTemplate};
pub use engine::{Engine, EngineParts, OpenError, SandboxError};
pub use events::{EVENTS_MAX, EventKind, SandboxEvent};
pub use fork::FORKS_MAX;
pub use guest::{
    EnvdGuest, Guest, GuestBytes, GuestCommand, GuestControl, GuestDoor, GuestEntry, GuestError,
    GuestExit, GuestFile, GuestFileKind, GuestOutput, GuestProcess, InitOrder, TerminalSize,
};
pub use inside::Inside;
pub use keys::{FirstKeyError, KeyError, KeyLifetime};
pub use list::{ListFilter, Order, Page, PageToken};
pub use logs::{LogEntry, LogLevel, LogQuery};
pub use metrics::Sample;
pub use names::NameError;
pub use pool::{MemberView, PoolFault, PoolView};
pub use recover::RecoverError;
pub use resize::{Infeasible, Resize};
pub use resolve::{Explained, Meaning, Resolved};
pub use room::NoRoom;
pub use runtimes::{AllowedRuntimes, RuntimeForbidden};
pub use set_timeout::TimeoutTooLong;
pub use snapshot::{NewSnapshot, TakeError};
pub use snapshots::{SnapshotError, SnapshotFilter};
pub use stock::{PreparedStock, StockDefinition, StockError, StockTemplate};
pub use store::SqliteStore;
pub use system_clock::SystemClock;
pub use tags::TagError;
pub use tasks::{TaskEnded, Tasks};
pub use team_limits::{TeamError, TeamView};
pub use team_metrics::TeamSample;
pub use templates::{Starts, TemplateError, Users};
pub use uploads::{IncomingUpload, UPLOAD_MAX, UploadError};
pub use usage::Use;
