//! Errors of calls.

use std::time::Duration;

use connectrpc::{ConnectError, ErrorCode};
use http::StatusCode;

use super::BodyError;

/// Error of a call to the daemon.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Connecting failed.
    #[error("cannot reach the daemon")]
    Unreachable(#[source] BodyError),
    /// The connection broke during the call.
    #[error("the connection to the daemon broke")]
    Interrupted(#[source] BodyError),
    /// Error response to a plain request.
    #[error("the daemon refused with status {status}: {message}")]
    Refused {
        /// Status of the response.
        status: StatusCode,
        /// Message of the response.
        message: String,
    },
    /// Error response to a Connect call.
    #[error("the daemon failed the call with {code}: {message}", code = .0.code.as_str(), message = .0.message.as_deref().unwrap_or_default())]
    Rpc(Box<ConnectError>),
    /// Timeout.
    #[error("the daemon did not answer within {0:?}")]
    TimedOut(Duration),
    /// Unexpected response.
    #[error("unexpected response of the daemon")]
    Malformed(#[source] BodyError),
    /// The path cannot be encoded in a URL.
    #[error("invalid request path '{0}'")]
    InvalidPath(String),
}

impl ClientError {
    pub(super) fn malformed(source: impl Into<BodyError>) -> Self {
        Self::Malformed(source.into())
    }

    /// The Connect error code, for a Connect call.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Rpc(error) => Some(error.code),
            _ => None,
        }
    }

    /// Whether the requested object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Rpc(error) => error.code == ErrorCode::NotFound,
            Self::Refused { status, .. } => *status == StatusCode::NOT_FOUND,
            _ => false,
        }
    }
}

impl From<ConnectError> for ClientError {
    fn from(error: ConnectError) -> Self {
        Self::Rpc(Box::new(error))
    }
}
