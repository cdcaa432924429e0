//! `POST /freeze` and `POST /unfreeze`: the control plane is about to save the sandbox, and has.

use std::sync::Arc;

use http::StatusCode;

use crate::active_time::ActiveTime;
use crate::answer::{self, Answer};
use crate::log::Log;

/// What asks for what was written to be on disk when the answer comes.
const SYNC: &str = "sync=true";

/// Stops and starts the time of processes.
pub(crate) struct Freezer {
    time: Arc<ActiveTime>,
    log: Log,
}

impl Freezer {
    /// Of this time.
    pub(crate) fn new(time: Arc<ActiveTime>, log: Log) -> Self {
        Self { time, log }
    }

    /// Lets no deadline come nearer. With `sync=true` all that was written reaches the disk first:
    /// whoever saves the disk alone loses what is only in memory.
    pub(crate) async fn freeze(&self, query: Option<&str>) -> Answer {
        let sync = query.is_some_and(|query| query.split('&').any(|part| part == SYNC));
        if sync && tokio::task::spawn_blocking(rustix::fs::sync).await.is_err() {
            return answer::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        self.time.freeze();
        self.log.info("freeze", "time stands still").send();
        answer::status(StatusCode::NO_CONTENT)
    }

    /// Lets deadlines come nearer again.
    pub(crate) fn unfreeze(&self) -> Answer {
        self.time.unfreeze();
        self.log.info("freeze", "time goes on").send();
        answer::status(StatusCode::NO_CONTENT)
    }
}
