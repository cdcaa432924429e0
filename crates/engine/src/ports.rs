//! The ports of the API layer, implemented on one machine: each method delegates to the engine.

mod access;
mod builds;
mod installation;
mod observe;
mod open;
mod sandboxes;
mod snapshots;
mod templates;

use std::sync::Arc;

use shoal_core::ports::Ports;
use shoal_core::ports::doctor::NoDoctor;
use shoal_core::ports::sessions::NoSessions;
use shoal_core::ports::sessions::preview::NoPreviews;

use crate::engine::Engine;

impl Engine {
    /// The engine as an implementation of every port.
    #[must_use]
    pub fn ports(&self) -> Ports {
        let engine = Arc::new(self.clone());
        Ports {
            sandboxes: engine.clone(),
            access: engine.clone(),
            snapshots: engine.clone(),
            templates: engine.clone(),
            builds: engine.clone(),
            uploads: engine.clone(),
            catalogue: engine.clone(),
            pools: engine.clone(),
            keys: engine.clone(),
            teams: engine.clone(),
            // Sessions use these ports, so they are added later.
            sessions: Arc::new(NoSessions),
            session_secrets: Arc::new(NoSessions),
            session_memories: Arc::new(NoSessions),
            session_files: Arc::new(NoSessions),
            previews: Arc::new(NoPreviews),
            // The server checks its machine, not the engine.
            doctor: Arc::new(NoDoctor),
            telemetry: engine.clone(),
            sandbox_events: engine.clone(),
            images: engine.clone(),
            clock: engine.shared.clock.clone(),
            installation: engine,
        }
    }
}
