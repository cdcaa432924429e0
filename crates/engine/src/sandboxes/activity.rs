//! The use of sandboxes, by which idle ones are found.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::clock::Clock;
use shoal_core::parking::Activity;
use shoal_core::routes::{OpenConnection, Route, Visit};

use super::Sandboxes;

/// The use of one sandbox: requests write it, and the sandbox's task reads it.
#[derive(Debug, Default)]
pub(crate) struct SharedActivity(Mutex<Activity>);

impl SharedActivity {
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Activity) -> T) -> T {
        look(&mut self.0.lock())
    }
}

/// A request under way.
struct Guard {
    activity: Arc<SharedActivity>,
    clock: Arc<dyn Clock>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let now = self.clock.now();
        self.activity.with(|activity| activity.leave(now));
    }
}

/// A connection that may be idle.
struct ConnectionGuard(Arc<SharedActivity>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.with(Activity::disconnect);
    }
}

impl Sandboxes {
    /// Registers a connection that may be idle. `None` if the sandbox is not parked, or its connections end with that.
    pub(super) fn open_connection(&self, route: &Route) -> Option<OpenConnection> {
        if !route.keeps_connections {
            return None;
        }
        let activity = self.registry.activity(&route.sandbox)?;
        activity.with(Activity::connect);
        Some(OpenConnection::until_dropped(ConnectionGuard(activity)))
    }

    /// Keeps the sandbox of a route from being parked. `None` if it is about to be, or if the route is an
    /// old one.
    pub(super) fn visit(&self, route: &Route) -> Option<Visit> {
        if !route.is_parkable {
            return Some(Visit::default());
        }
        let activity = self.registry.activity(&route.sandbox)?;
        let clock = self.parts.clock.clone();
        if !activity.with(Activity::enter) {
            return None;
        }
        let guard = Guard { activity, clock };
        // After it entered: it may have been parked since the route was read, and no longer can be.
        let runs = self.registry.read(&route.sandbox, |published| {
            let now = published.route.as_ref();
            now.is_some_and(|now| now.execution == route.execution)
        });
        runs.unwrap_or(false).then(|| Visit::until_dropped(guard))
    }
}
