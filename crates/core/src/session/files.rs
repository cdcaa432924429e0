//! What is known of a session's files: what the session has, and what its machine has of it.

use serde::{Deserialize, Serialize};
use shoal_session_files::path::SessionPath;
use shoal_session_files::state::{Digest, FileState};

use super::merge::{Sides, Step};
use crate::clock::Timestamp;
use crate::id::SandboxId;

/// The most files of a session.
pub const FILES_MAX: usize = 100_000;

/// The most bytes of a session's files together.
pub const BYTES_MAX: u64 = 8 << 30;

/// A file that a session has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFile {
    /// What it contains.
    pub state: FileState,
    /// When its contents last changed.
    pub modified_at: Timestamp,
    /// Both sides had changed the file at this path, and this is the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_of: Option<SessionPath>,
}

/// What is known of a path in a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineFile {
    /// The machine. In any other one, nothing is known of the path.
    pub sandbox: SandboxId,
    /// What both sides had when they last agreed; none for no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<FileState>,
    /// Contents that may have been written there since, in part or whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writing: Option<Digest>,
    /// The file that the machine came with. It is the session's only when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Digest>,
}

impl MachineFile {
    /// What is known at first.
    #[must_use]
    pub fn unknown(sandbox: SandboxId) -> Self {
        Self {
            sandbox,
            agreed: None,
            writing: None,
            template: None,
        }
    }

    /// The contents that a change in the machine goes out from.
    #[must_use]
    pub fn expected(&self) -> Option<Digest> {
        self.agreed.map(|agreed| agreed.digest).or(self.template)
    }
}

/// What is known of one path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileRow {
    /// The session's file; none when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<StoredFile>,
    /// The machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineFile>,
}

impl FileRow {
    /// What the session has.
    #[must_use]
    pub fn state(&self) -> Option<FileState> {
        self.file.as_ref().map(|file| file.state)
    }

    /// What is known of the path in this machine.
    #[must_use]
    pub fn in_machine(&self, sandbox: &SandboxId) -> MachineFile {
        let known = self.machine.clone();
        known
            .filter(|known| known.sandbox == *sandbox)
            .unwrap_or_else(|| MachineFile::unknown(sandbox.clone()))
    }

    /// Whether the session has changed since both sides agreed.
    #[must_use]
    pub fn is_behind(&self, sandbox: &SandboxId) -> bool {
        self.in_machine(sandbox).agreed != self.state()
    }

    /// What to do, now that the machine has this at the path.
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

    /// Whether the row says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let known = self.machine.as_ref();
        let says = |known: &MachineFile| known.expected().is_some() || known.writing.is_some();
        self.file.is_none() && !known.is_some_and(says)
    }

    /// The contents that the row names.
    pub fn contents(&self) -> impl Iterator<Item = Digest> {
        let known = self.machine.as_ref();
        let agreed = known.and_then(|known| known.agreed);
        let writing = known.and_then(|known| known.writing);
        let states = [self.state(), agreed].into_iter().flatten();
        states.map(|state| state.digest).chain(writing)
    }
}

/// How far the two sides agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    /// Both sides have the same; also without a machine.
    Synced,
    /// Files of the session are on their way to the machine, or cannot get there.
    Behind,
    /// Both sides had changed files, and nobody has settled that since.
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
        // The session's own file takes its place.
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
