//! The body of a plain HTTP error.

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// What the daemon says when a plain HTTP request fails.
///
/// Connect calls fail with Connect's own body instead, except for a missing token, which is refused
/// before anybody looks at the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The HTTP status again: clients of E2B read it here.
    pub code: u16,
    /// What failed, for people; some clients compare it.
    pub message: String,
}

impl ErrorBody {
    /// Says `message` with `status`.
    #[must_use]
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            code: status.as_u16(),
            message: message.into(),
        }
    }
}
