//! Body of a plain HTTP error.

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// Error response of the daemon to a plain HTTP request.
///
/// Connect calls fail with Connect's own error body, except for a missing token, which is rejected
/// before routing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The HTTP status, which E2B's clients read here.
    pub code: u16,
    /// Human-readable error; some clients compare it.
    pub message: String,
}

impl ErrorBody {
    /// An error with this status and message.
    #[must_use]
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            code: status.as_u16(),
            message: message.into(),
        }
    }
}
