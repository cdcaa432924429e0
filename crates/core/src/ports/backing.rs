//! The objects of a cluster behind a sandbox.

/// An object of a cluster behind a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingObject {
    /// Its part in the sandbox.
    pub role: BackingRole,
    /// Its group and version: `agents.kruise.io/v1alpha1`.
    pub api_version: String,
    /// Its kind: `Pod`.
    pub kind: String,
    /// Its namespace; none for a node.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its state in one word, as the cluster says it; empty if it is not known here.
    pub state: String,
}

/// The part of an object in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackingRole {
    /// The sandbox itself: its record.
    Record,
    /// It created the sandbox, or keeps it.
    Owner,
    /// It runs the sandbox.
    Runs,
    /// The machine that runs it. Only the operator of the cluster should see it.
    Node,
    /// The sandbox was started from it.
    StartedFrom,
    /// It was saved from the sandbox.
    SavedFrom,
}

impl BackingRole {
    /// The role in one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Owner => "owner",
            Self::Runs => "runs",
            Self::Node => "node",
            Self::StartedFrom => "started_from",
            Self::SavedFrom => "saved_from",
        }
    }
}
