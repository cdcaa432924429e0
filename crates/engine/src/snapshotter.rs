//! Takes snapshots of sandboxes, and exports and imports them.
//!
//! [`Snapshots`] keeps the records. This service also needs sandboxes and the names of templates,
//! which depend on those records.

mod take;
mod transfer;

use std::sync::Arc;

use shoal_core::clock::Clock;
use shoal_core::driver::ExportKey;
pub use shoal_core::ports::snapshots::{NewSnapshot, TakeError};

use crate::access::Access;
use crate::config::EngineConfig;
use crate::drivers::Drivers;
use crate::sandboxes::Sandboxes;
use crate::snapshots::Snapshots;
use crate::templates::Templates;
use crate::work::Work;

/// The dependencies of [`Snapshotter`].
pub(crate) struct SnapshotterParts {
    pub(crate) drivers: Arc<Drivers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) access: Arc<Access>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) work: Work,
}

/// Takes, exports and imports snapshots.
pub(crate) struct Snapshotter {
    parts: SnapshotterParts,
    export_key: ExportKey,
    import_max: u64,
}

impl Snapshotter {
    pub(crate) fn new(config: &EngineConfig, parts: SnapshotterParts) -> Self {
        let configured = config.export_key.clone();
        Self {
            export_key: configured.unwrap_or_else(|| parts.access.export_key()),
            import_max: config.import_max,
            parts,
        }
    }
}
