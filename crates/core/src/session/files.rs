//! The state of a session's files: the session's own version, and that of its machine.

use serde::{Deserialize, Serialize};
use shoal_session_files::path::SessionPath;
use shoal_session_files::state::{Digest, FileState};

use super::merge::{Sides, Step};
use crate::clock::Timestamp;
use crate::id::SandboxId;

/// The maximum number of files of a session.
pub const FILES_MAX: usize = 100_000;

/// The maximum total size of a session's files, in bytes.
pub const BYTES_MAX: u64 = 8 << 30;

/// A file of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFile {
    /// Its contents.
    pub state: FileState,
    /// The time of the last change of its contents.
    pub modified_at: Timestamp,
    /// Set on the machine's copy after a conflict: both sides had changed the file at this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_of: Option<SessionPath>,
}

/// The state of a path in a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineFile {
    /// The machine. The state does not apply to any other machine.
    pub sandbox: SandboxId,
    /// The contents of both sides when they were last equal; `None` if there was no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<FileState>,
    /// Contents that may have been written since then, in part or completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writing: Option<Digest>,
    /// The file of the machine's template. The session has no copy until it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Digest>,
}

impl MachineFile {
    /// The state of a path in a new machine.
    #[must_use]
    pub fn unknown(sandbox: SandboxId) -> Self {
        Self {
            sandbox,
            agreed: None,
            writing: None,
            template: None,
        }
    }

    /// The contents that a change in the machine is based on.
    #[must_use]
    pub fn expected(&self) -> Option<Digest> {
        self.agreed.map(|agreed| agreed.digest).or(self.template)
    }
}

/// The state of one path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileRow {
    /// The session's file, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<StoredFile>,
    /// The state in the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineFile>,
}

impl FileRow {
    /// The contents of the session's file.
    #[must_use]
    pub fn state(&self) -> Option<FileState> {
        self.file.as_ref().map(|file| file.state)
    }

    /// The state of the path in this machine.
    #[must_use]
    pub fn in_machine(&self, sandbox: &SandboxId) -> MachineFile {
        let known = self.machine.clone();
        known
            .filter(|known| known.sandbox == *sandbox)
            .unwrap_or_else(|| MachineFile::unknown(sandbox.clone()))
    }

    /// Whether the session's file changed since both sides were equal.
    #[must_use]
    pub fn is_behind(&self, sandbox: &SandboxId) -> bool {
        self.in_machine(sandbox).agreed != self.state()
    }

    /// The action for these contents of the path in the machine.
    #[must_use]
    pub fn step(&self, sandbox: &SandboxId, found: Option<FileState>) -> Step {
        let known = self.in_machine(sandbox);
        let is_template = known.agreed.is_none()
            && found.is_some_and(|found| Some(found.digest) == known.template);
        let sides = Sides {
            agreed: known.agreed,
            session: self.state(),
            machine: found.filter(|_| !is_template),
        };
        sides.step()
    }

    /// Whether the row has no information, so that it can be deleted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let known = self.machine.as_ref();
        let says = |known: &MachineFile| known.expected().is_some() || known.writing.is_some();
        self.file.is_none() && !known.is_some_and(says)
    }

    /// The contents that the row refers to.
    pub fn contents(&self) -> impl Iterator<Item = Digest> {
        let known = self.machine.as_ref();
        let agreed = known.and_then(|known| known.agreed);
        let writing = known.and_then(|known| known.writing);
        let states = [self.state(), agreed].into_iter().flatten();
        states.map(|state| state.digest).chain(writing)
    }
}

/// The synchronization state of session and machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    /// Both sides are equal, or there is no machine.
    Synced,
    /// Files of the session are not yet written to the machine, or cannot be, or the sync is interrupted.
    Behind,
    /// Both sides changed a file, and the conflict is not resolved.
    Conflict,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(byte: u8) -> FileState {
        FileState {
            digest: Digest([byte; 32]),
            size: 1,
            executable: false,
        }
    }

    fn row(session: Option<u8>, agreed: Option<u8>, template: Option<u8>) -> FileRow {
        FileRow {
            file: session.map(|byte| StoredFile {
                state: state(byte),
                modified_at: Timestamp::from_unix_seconds(1),
                conflict_of: None,
            }),
            machine: Some(MachineFile {
                agreed: agreed.map(state),
                template: template.map(|byte| Digest([byte; 32])),
                ..MachineFile::unknown(sandbox(1))
            }),
        }
    }

    fn sandbox(byte: u8) -> SandboxId {
        SandboxId::from_entropy([byte; 16])
    }

    #[test]
    fn a_file_of_the_template_is_no_file_of_the_session_until_it_changes() {
        let fresh = row(None, None, Some(7));
        assert_eq!(fresh.step(&sandbox(1), Some(state(7))), Step::Agree);
        assert_eq!(fresh.step(&sandbox(1), Some(state(8))), Step::ToSession);
        assert_eq!(fresh.step(&sandbox(1), None), Step::Agree);
        assert!(!fresh.is_empty());
        // The session's file replaces it.
        let kept = row(Some(8), None, Some(7));
        assert_eq!(kept.step(&sandbox(1), Some(state(7))), Step::ToMachine);
        assert_eq!(
            kept.in_machine(&sandbox(1)).expected(),
            Some(Digest([7; 32]))
        );
    }

    #[test]
    fn what_was_known_of_another_machine_counts_for_nothing() {
        let row = row(Some(8), Some(8), None);
        assert!(!row.is_behind(&sandbox(1)));
        assert!(row.is_behind(&sandbox(2)));
        assert_eq!(row.step(&sandbox(2), None), Step::ToMachine);
        assert_eq!(row.step(&sandbox(1), None), Step::ToSession);
    }
}
