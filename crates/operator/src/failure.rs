//! Why a reconcile failed.

/// A failed step of a reconcile. It is retried later, with a growing delay.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The API server refused a call, or could not be reached.
    #[error("{}", told(.0))]
    Api(#[from] kube::Error),
    /// An object is in the way, or a specification cannot be followed.
    #[error("{0}")]
    Refused(String),
    /// A value cannot be written as JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Several steps failed.
    #[error("{}", joined(.0))]
    Several(Vec<Failure>),
    /// The task of the reconcile ended without a result.
    #[error("the reconcile was aborted: {0}")]
    Aborted(#[from] tokio::task::JoinError),
}

fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

fn joined(failures: &[Failure]) -> String {
    let told: Vec<String> = failures.iter().map(ToString::to_string).collect();
    told.join("\n")
}

impl Failure {
    /// One failure of several steps, or none.
    pub(crate) fn of(mut failures: Vec<Self>) -> Option<Self> {
        if failures.len() > 1 {
            return Some(Self::Several(failures));
        }
        failures.pop()
    }
}

/// The HTTP status of the API server's refusal.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether the API server says that the object does not exist.
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// Whether the API server says that the object exists, or was changed meanwhile.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    code(error) == Some(409)
}
