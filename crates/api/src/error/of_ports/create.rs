//! The status of each error of a create.

use http::StatusCode;
use shoal_core::driver::DriverError;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::sandboxes::NameError;

use super::status_of_image;
use crate::error::{ApiError, wording};

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        let message = error.to_string();
        let bad = |message| Self::new(StatusCode::BAD_REQUEST, message);
        match error {
            CreateError::Template(template) => template.into(),
            CreateError::BeingBuilt { build, .. } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                wording::being_built(&message, &build),
            )
            .with_code("template_being_built"),
            CreateError::NotBuilt { template, .. } => {
                Self::internal(wording::not_built(&message, &template))
            }
            CreateError::Builtin(error) => error.into(),
            CreateError::NoTemplate => Self::invalid(format_args!("`templateID`: {message}")),
            CreateError::Image { error, .. } => {
                Self::new(status_of_image(&error), message).caused_by(&error)
            }
            CreateError::ImageForbidden | CreateError::EndlessForbidden => {
                Self::new(StatusCode::FORBIDDEN, message)
            }
            CreateError::Runtime(forbidden) => forbidden.into(),
            CreateError::ImageOfSnapshot => {
                Self::invalid(format_args!("`image`: {message}: leave `image` out"))
            }
            CreateError::NoNestedContainers(_) | CreateError::PrivilegedForbidden => {
                Self::new(StatusCode::NOT_IMPLEMENTED, message)
            }
            CreateError::CannotKeepMemory(runtime) => bad(wording::cannot_keep_memory(&runtime)),
            CreateError::TimeoutTooLong(too_long) => too_long.into(),
            CreateError::NoTimeout => bad(wording::NO_TIMEOUT.to_owned()),
            CreateError::Resources(_) | CreateError::Network(_) => bad(message),
            CreateError::Name(NameError::Invalid(_)) | CreateError::InvalidOption(_) => {
                Self::invalid(message)
            }
            CreateError::Name(NameError::Taken(_)) => Self::new(StatusCode::CONFLICT, message),
            CreateError::Full(full) => full.into(),
            CreateError::IdempotencyMismatch => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, message)
                    .with_code("idempotency_request_mismatch")
            }
            CreateError::IdempotencyInProgress => {
                Self::new(StatusCode::CONFLICT, message).with_code("idempotency_in_progress")
            }
            CreateError::IdempotencyGone => {
                Self::new(StatusCode::CONFLICT, message).with_code("idempotency_outcome_unknown")
            }
            CreateError::Driver(driver) => of_create(driver),
            CreateError::Start(_) | CreateError::Guest(_) | CreateError::NotReady(_) => {
                Self::internal(message).with_code("sandbox_create_failed")
            }
            CreateError::Sandbox(sandbox) => sandbox.into(),
            CreateError::Store(store) => store.into(),
            CreateError::Entropy(_) => Self::internal(message),
        }
    }
}

/// The response to a create whose driver failed.
fn of_create(driver: DriverError) -> ApiError {
    match driver {
        DriverError::ImageNotFound(_) | DriverError::Step { .. } => {
            ApiError::from(driver).with_code("sandbox_create_failed")
        }
        driver => driver.into(),
    }
}
