//! Why a call failed.

use std::time::Duration;

use connectrpc::{ConnectError, ErrorCode};
use http::StatusCode;

use super::BodyError;

/// Why a call to the daemon failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection to it could be made.
    #[error("cannot reach the daemon")]
    Unreachable(#[source] BodyError),
    /// The connection broke in the middle.
    #[error("the connection to the daemon broke")]
    Interrupted(#[source] BodyError),
    /// It answered a plain request with an error.
    #[error("the daemon refused with status {status}: {message}")]
    Refused {
        /// The answer's status.
        status: StatusCode,
        /// What it said.
        message: String,
    },
    /// It answered a Connect call with an error.
    #[error("the daemon failed the call with {code}: {message}", code = .0.code.as_str(), message = .0.message.as_deref().unwrap_or_default())]
    Rpc(Box<ConnectError>),
    /// It did not answer in time.
    #[error("the daemon did not answer within {0:?}")]
    TimedOut(Duration),
    /// Its answer is not what was asked for.
    #[error("the daemon's answer makes no sense")]
    Malformed(#[source] BodyError),
    /// No URL can hold this path.
    #[error("no request can be made for '{0}'")]
    InvalidPath(String),
}

impl ClientError {
    pub(super) fn malformed(source: impl Into<BodyError>) -> Self {
        Self::Malformed(source.into())
    }

    /// Connect's code, if a Connect call failed.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Rpc(error) => Some(error.code),
            _ => None,
        }
    }

    /// Whether what was asked for is not there.
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
