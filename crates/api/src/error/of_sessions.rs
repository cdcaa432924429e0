//! The answers to errors of sessions.

use http::StatusCode;
use shoal_core::ports::sessions::SessionError;
use shoal_core::ports::sessions::files::FileError;
use shoal_core::ports::sessions::memories::MemoryError;
use shoal_core::ports::sessions::secrets::SecretError;

use super::ApiError;

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        match error {
            SessionError::NotFound(_) | SessionError::NoWindow(_) => Self::not_found(message),
            SessionError::TooManyWindows(_) | SessionError::TooMany(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, message)
            }
            SessionError::InvalidCommand => Self::invalid(format_args!("`command`: {message}")),
            SessionError::NotConfirmed | SessionError::Ending(_) => {
                Self::new(StatusCode::CONFLICT, message)
            }
            SessionError::Metadata(_) => Self::invalid(format_args!("`metadata`: {message}")),
            SessionError::Secret(secret) => of_secret(&secret),
            SessionError::Memory(memory) => of_memory(&memory),
            SessionError::Machine(_) => Self::invalid(format_args!("`machine`: {message}")),
            SessionError::NoSuchMachine { .. } => Self::new(StatusCode::NOT_IMPLEMENTED, message),
            SessionError::Image(_) => Self::invalid(format_args!("`machine`: {message}")),
            SessionError::Docker(_) => Self::new(StatusCode::BAD_GATEWAY, message),
            SessionError::Create(create) => create.into(),
            SessionError::Sandbox(sandbox) => sandbox.into(),
            SessionError::Inside(inside) => inside.into(),
            SessionError::File(file) => file.into(),
            SessionError::Store(store) => store.into(),
            SessionError::Entropy(_) => Self::internal(message),
            SessionError::NotServed(absent) => absent.into(),
        }
    }
}

fn of_secret(error: &SecretError) -> ApiError {
    match error {
        SecretError::NotFound(_) => ApiError::not_found(error.to_string()),
        SecretError::Invalid(_) | SecretError::TooLong(_) => ApiError::invalid(error),
        SecretError::TooMany(_) => ApiError::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()),
        SecretError::Sealed(_) => ApiError::new(StatusCode::CONFLICT, error.to_string()),
    }
}

fn of_memory(error: &MemoryError) -> ApiError {
    match error {
        MemoryError::NotFound(_) => ApiError::not_found(error.to_string()),
        MemoryError::Name(_) => ApiError::invalid(error),
        MemoryError::Long => ApiError::invalid(format_args!("`text`: {error}")),
        MemoryError::TooMany(_) => ApiError::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()),
    }
}

impl From<FileError> for ApiError {
    fn from(error: FileError) -> Self {
        let message = error.to_string();
        match error {
            FileError::NotFound(_) => Self::not_found(message),
            FileError::Path(_) => Self::invalid(format_args!("`path`: {message}")),
            FileError::InTheWay { .. } | FileError::Ending(_) => {
                Self::new(StatusCode::CONFLICT, message)
            }
            FileError::Changed(_) => Self::new(StatusCode::PRECONDITION_FAILED, message),
            FileError::TooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, message),
            FileError::TooMany(_) => Self::new(StatusCode::TOO_MANY_REQUESTS, message),
            FileError::Full(_) => Self::new(StatusCode::INSUFFICIENT_STORAGE, message),
            FileError::Lost(_) => Self::internal(message),
            FileError::Store(store) => store.into(),
        }
    }
}
