//! Pauses and resumes a sandbox.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::SandboxPermit;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::Contents;
use shoal_core::state::{InputKind, Refused, StateKind};

use super::Sandboxes;
use super::command::{Command, PauseRequest, ResumeRequest};
use shoal_core::ports::sandboxes::SandboxError;

impl Sandboxes {
    /// Saves a sandbox and stops it. Keeps `contents`, or by default what its template says. With
    /// `healthy`, the pause is refused if the daemon does not answer. Concurrent callers share one pause.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when it is paused already. If it cannot be saved, it keeps running.
    pub(crate) async fn pause(
        &self,
        permit: &SandboxPermit,
        contents: Option<Contents>,
        healthy: bool,
    ) -> Result<(), SandboxError> {
        let id = permit.sandbox();
        let record = self.registry.record(id);
        let record = record.ok_or_else(|| SandboxError::NotFound(id.clone()))?;
        if record.state.kind() == StateKind::Paused {
            return Err(Refused {
                input: InputKind::Pause,
                state: StateKind::Paused,
            }
            .into());
        }
        let request = PauseRequest {
            contents,
            healthy,
            of: record.execution,
        };
        self.call(permit.sandbox(), |reply| Command::Pause(request, reply))
            .await
    }

    /// Resumes a paused sandbox for `timeout`; without `memory` it boots from its files. Concurrent
    /// callers share one run, which gets the longest of their timeouts.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when it runs already. If it cannot be resumed, it stays paused.
    pub(crate) async fn resume(
        &self,
        permit: &SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.check_timeout(timeout)?;
        let record = self.registry.record(permit.sandbox());
        let request = ResumeRequest {
            timeout,
            memory,
            found_paused: record.is_some_and(|record| !record.state.shows_running()),
        };
        self.call(permit.sandbox(), |reply| Command::Resume(request, reply))
            .await
    }
}
