//! `POST /freeze` and `POST /unfreeze`: called before and after the sandbox is saved.

use std::sync::Arc;

use http::StatusCode;

use crate::active_time::ActiveTime;
use crate::log::Log;
use crate::response::{self, HttpResponse};

/// Query parameter that requests a sync to disk before the response.
const SYNC_PARAMETER: &str = "sync=true";

/// Freezes and resumes the time of processes.
pub(crate) struct Freezer {
    time: Arc<ActiveTime>,
    log: Log,
}

impl Freezer {
    /// A freezer of this time.
    pub(crate) fn new(time: Arc<ActiveTime>, log: Log) -> Self {
        Self { time, log }
    }

    /// Stops all deadlines. With `sync=true` it syncs file systems first: a save of the disk alone
    /// loses data that is only in memory.
    pub(crate) async fn freeze(&self, query: Option<&str>) -> HttpResponse {
        let sync = query.is_some_and(|query| query.split('&').any(|part| part == SYNC_PARAMETER));
        if sync && tokio::task::spawn_blocking(rustix::fs::sync).await.is_err() {
            return response::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        self.time.freeze();
        self.log.info("freeze", "time frozen").send();
        response::status(StatusCode::NO_CONTENT)
    }

    /// Resumes all deadlines.
    pub(crate) fn unfreeze(&self) -> HttpResponse {
        self.time.unfreeze();
        self.log.info("freeze", "time resumed").send();
        response::status(StatusCode::NO_CONTENT)
    }
}
