//! `GET /activity`: what runs in the sandbox besides the daemon. A sandbox in which nothing runs can be
//! saved and ended without anybody noticing.

mod sockets;

use std::io;
use std::sync::Arc;

use http::StatusCode;
use shoal_protocol::activity::Activity;

use crate::process::{Children, Processes};
use crate::procfs;
use crate::response::{self, HttpResponse};

/// Looks at processes and connections.
#[derive(Clone)]
pub(crate) struct ActivityReader {
    processes: Arc<Processes>,
    children: Arc<Children>,
}

impl ActivityReader {
    /// A reader of these processes.
    pub(crate) fn new(processes: Arc<Processes>, children: Arc<Children>) -> Self {
        Self {
            processes,
            children,
        }
    }

    /// Answers with what runs now.
    pub(crate) async fn answer(&self) -> HttpResponse {
        let this = self.clone();
        match tokio::task::spawn_blocking(move || this.read()).await {
            Ok(Ok(activity)) => response::not_stored(response::json(StatusCode::OK, &activity)),
            // Without the connections, it may not be idle.
            Ok(Err(_)) | Err(_) => response::status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    fn read(&self) -> io::Result<Activity> {
        Ok(Activity {
            commands: self.processes.command_lines(),
            orphans: self.orphans(),
            connections: sockets::outbound()?,
        })
    }

    /// The children that the daemon did not start. It is the parent of every process whose own has ended.
    fn orphans(&self) -> usize {
        let own = i32::try_from(std::process::id()).ok();
        let children = procfs::processes().filter(|pid| procfs::parent(*pid) == own);
        children
            .filter(|pid| !self.children.has_started(*pid))
            .count()
    }
}
