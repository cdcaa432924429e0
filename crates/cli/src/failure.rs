//! Failures: a message, a hint and an exit code.

use std::fmt;
use std::io;

use http::StatusCode;
use shoal_protocol::client::ClientError;

use crate::output::plain;

/// The exit code of a wrong command line (`EX_USAGE` of sysexits).
pub const USAGE: u8 = 64;

/// The exit codes in help texts.
pub const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  failed for another reason
   64  the command line is wrong
   66  not found: sandbox, template, image, key or file
   69  the server cannot be reached, or the connection broke
   70  the server failed
   75  not now: a limit is reached, or it is in use; try again later
   77  refused: no key, a wrong one, or one without the right
  130  interrupted

`shoal sandbox exec` and `shell` exit with the command's exit code: 127 when it cannot be
started, and 128 and the signal's number when a signal ended it.";

/// The kinds of failure, by exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Other failures.
    Other,
    /// The command line is wrong.
    Usage,
    /// The named thing does not exist.
    NotFound,
    /// The server is unreachable.
    Unreachable,
    /// The server failed.
    Server,
    /// A retry may succeed.
    NotNow,
    /// The caller lacks the permission.
    Refused,
    /// The user interrupted.
    Interrupted,
    /// The reader of the output is gone. Prints nothing.
    NobodyReads,
    /// A command could not be started in a sandbox.
    NotStarted,
}

/// A command that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    details: Vec<String>,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            details: Vec::new(),
            hint: None,
        }
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(Kind::Other, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// Adds a hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds context lines: a line of a file, the end of a log.
    pub(crate) fn with_details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            Kind::Other => 1,
            Kind::Usage => USAGE,
            Kind::NotFound => 66,
            Kind::Unreachable => 69,
            Kind::Server => 70,
            Kind::NotNow => 75,
            Kind::Refused => 77,
            Kind::NotStarted => 127,
            Kind::Interrupted => 130,
            // As for a signal.
            Kind::NobodyReads => 141,
        }
    }

    /// Prints the failure on standard error.
    pub(crate) fn tell(&self) {
        if self.kind == Kind::NobodyReads {
            return;
        }
        // The text may come from a sandbox, so escape sequences are removed.
        eprintln!("shoal: {}", plain(&self.message));
        for line in &self.details {
            eprintln!("  {}", plain(line));
        }
        if let Some(hint) = &self.hint {
            eprintln!("       {}", plain(hint));
        }
    }

    /// From an API error.
    pub(crate) fn of_status(status: StatusCode, message: String) -> Self {
        let kind = match status {
            StatusCode::NOT_FOUND => Kind::NotFound,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Kind::Refused,
            StatusCode::CONFLICT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE => Kind::NotNow,
            StatusCode::BAD_REQUEST => Kind::Usage,
            status if status.is_server_error() => Kind::Server,
            _ => Kind::Other,
        };
        Self::new(kind, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<io::Error> for Failure {
    /// From an error of standard output.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Kind::NobodyReads, "the output was closed");
        }
        Self::other(format!("cannot write the output: {error}"))
    }
}

impl From<ClientError> for Failure {
    /// From a call to a sandbox's daemon.
    fn from(error: ClientError) -> Self {
        use connectrpc::ErrorCode;
        let kind = match &error {
            ClientError::Unreachable(_) | ClientError::Interrupted(_) => Kind::Unreachable,
            ClientError::TimedOut(_) | ClientError::Malformed(_) => Kind::Server,
            ClientError::Refused { status, message } => {
                return Self::of_status(*status, message.clone());
            }
            ClientError::InvalidPath(_) => Kind::Usage,
            ClientError::Rpc(rpc) => match rpc.code {
                ErrorCode::NotFound => Kind::NotFound,
                ErrorCode::InvalidArgument => Kind::Usage,
                ErrorCode::Unauthenticated | ErrorCode::PermissionDenied => Kind::Refused,
                ErrorCode::ResourceExhausted => Kind::NotNow,
                ErrorCode::Unavailable => Kind::Unreachable,
                ErrorCode::Internal | ErrorCode::Unknown => Kind::Server,
                _ => Kind::Other,
            },
        };
        let message = match &error {
            ClientError::Rpc(rpc) => match &rpc.message {
                Some(message) if !message.is_empty() => message.clone(),
                _ => error.to_string(),
            },
            _ => error.to_string(),
        };
        Self::new(kind, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_help() {
        for (kind, code) in [
            (Kind::Other, 1),
            (Kind::Usage, 64),
            (Kind::NotFound, 66),
            (Kind::Unreachable, 69),
            (Kind::Server, 70),
            (Kind::NotNow, 75),
            (Kind::Refused, 77),
            (Kind::NotStarted, 127),
            (Kind::Interrupted, 130),
        ] {
            assert_eq!(Failure::new(kind, "").code(), code);
            assert!(EXIT_CODES.contains(&code.to_string()), "{code}");
        }
    }

    #[test]
    fn statuses_become_kinds() {
        for (status, kind) in [
            (400, Kind::Usage),
            (401, Kind::Refused),
            (403, Kind::Refused),
            (404, Kind::NotFound),
            (409, Kind::NotNow),
            (429, Kind::NotNow),
            (500, Kind::Server),
            (503, Kind::NotNow),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Failure::of_status(status, String::new()).kind(), kind);
        }
    }

    #[test]
    fn a_closed_pipe_is_nobodys_mistake() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.code(), 141);
    }
}
