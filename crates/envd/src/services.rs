//! Shared by several services of the daemon.

use std::sync::Arc;

use crate::active_time::ActiveTime;
use crate::log::Log;
use crate::oom_killer::OomKiller;
use crate::process::{Children, InheritedLimits};
use crate::settings::Settings;
use crate::user::Users;

/// Shared parts of the daemon. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SharedServices {
    /// Limits to restore in children.
    pub(crate) inherited_limits: InheritedLimits,
    /// Settings from the control plane.
    pub(crate) settings: Arc<Settings>,
    /// Users of the sandbox.
    pub(crate) users: Arc<Users>,
    /// Registry of child processes.
    pub(crate) children: Arc<Children>,
    /// Time during which the sandbox runs.
    pub(crate) time: Arc<ActiveTime>,
    /// Memory monitor.
    pub(crate) oom_killer: Arc<OomKiller>,
    /// The log.
    pub(crate) log: Log,
}
