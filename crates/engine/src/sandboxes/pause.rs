//! Pause a sandbox, and let it go on.

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
    /// Saves a sandbox and stops it. With `contents` that is kept, else what its template says.
    /// With `healthy` a daemon inside that does not answer is a reason not to. Callers that ask at once
    /// share one pause.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when it was paused before; when it cannot be saved, it runs on.
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

    /// Lets a paused sandbox go on for `timeout`; without `memory` it boots from its files. Callers
    /// that ask at once share one run, which lasts as long as the longest of them wants.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when it ran before; when it cannot go on, it stays as it was saved.
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
            found_paused: record.is_some_and(|record| !record.state.is_running()),
        };
        self.call(permit.sandbox(), |reply| Command::Resume(request, reply))
            .await
    }
}
