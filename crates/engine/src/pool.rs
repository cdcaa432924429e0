//! Warm pools: sandboxes of a catalogue entry that are started before a client asks for one.
//!
//! A member is an ordinary sandbox. Its record names its pool and its phase
//! ([`PoolMember`](shoal_core::pool::PoolMember)). [`PoolMembers`] keeps in memory which members can be
//! claimed; recovery rebuilds it from the records. A member is removed from it before anything is done
//! to its sandbox, so that no two tasks act on one member.

mod claim;
mod fill;
mod history;
mod make;
mod members;
mod parking;
mod recover;
mod view;
mod warm_snapshot;

use std::sync::Arc;

use shoal_core::clock::Clock;
use shoal_core::store::PoolStore;

pub use self::view::{MemberView, PoolFault, PoolSample, PoolView};

pub(crate) use self::members::PoolMembers;

use crate::access::Access;
use crate::catalogue::Catalogues;
use crate::drivers::Drivers;
use crate::guest::Guest;
use crate::images::NodeImages;
use crate::plan::Planner;
use crate::resolve::Resolver;
use crate::sandboxes::Sandboxes;
use crate::telemetry::Telemetry;
use crate::work::Work;

/// How many members start at the same time, of all pools together.
const MAX_CONCURRENT_STARTS: usize = 8;

/// The dependencies of [`Pools`].
pub(crate) struct PoolParts {
    pub(crate) store: Arc<dyn PoolStore>,
    pub(crate) drivers: Arc<Drivers>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) access: Arc<Access>,
    pub(crate) catalogues: Arc<Catalogues>,
    pub(crate) images: Arc<NodeImages>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) planner: Arc<Planner>,
    /// Hears of ended sandboxes as the listener of `sandboxes`.
    pub(crate) members: Arc<PoolMembers>,
    pub(crate) work: Work,
}

/// The warm pools of the catalogue.
pub(crate) struct Pools {
    parts: PoolParts,
}

impl Pools {
    pub(crate) fn new(parts: PoolParts) -> Self {
        Self { parts }
    }
}
