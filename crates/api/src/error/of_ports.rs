//! The status of each error of the ports.

mod create;

use http::StatusCode;
use shoal_core::driver::DriverError;
use shoal_core::image::ImageError;
use shoal_core::network::{InvalidHostMask, InvalidRule};
use shoal_core::ports::NotServed;
use shoal_core::ports::access::{KeyError, TeamError};
use shoal_core::ports::builds::{BuildError, BuiltinError};
use shoal_core::ports::catalogue::CatalogueError;
use shoal_core::ports::external::ExternalError;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::observe::SubscribeError;
use shoal_core::ports::sandboxes::{QuotaExceeded, RuntimeForbidden, SandboxError, TimeoutTooLong};
use shoal_core::ports::snapshots::{SnapshotError, SnapshotNameError, TakeError};
use shoal_core::ports::templates::{CreateTemplateError, TagError, TemplateError};
use shoal_core::store::StoreError;

use super::{ApiError, wording};

/// When a client may try a storage again that did not answer, in seconds.
const STORAGE_RETRY: u64 = 10;

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match &error {
            StoreError::NoSpace => Self::new(StatusCode::INSUFFICIENT_STORAGE, message),
            StoreError::Conflict { .. } => Self::new(StatusCode::CONFLICT, message),
            StoreError::Corrupt { .. } => Self::internal(message),
            StoreError::Unavailable(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .with_retry_after(STORAGE_RETRY)
                .caused_by(&error),
            StoreError::Failed(_) => Self::internal(message).caused_by(&error),
        }
    }
}

impl From<NotServed> for ApiError {
    fn from(error: NotServed) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, error.to_string())
    }
}

impl From<SubscribeError> for ApiError {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Forbidden => Self::new(StatusCode::FORBIDDEN, error.to_string()),
            SubscribeError::NotServed(absent) => absent.into(),
        }
    }
}

impl From<DriverError> for ApiError {
    fn from(error: DriverError) -> Self {
        let message = error.to_string();
        match &error {
            DriverError::NotFound(_) | DriverError::SnapshotNotFound(_) => Self::not_found(message),
            DriverError::Unusable(_) | DriverError::Untrusted | DriverError::CannotResize(_) => {
                Self::new(StatusCode::CONFLICT, message)
            }
            DriverError::RuntimeNotFound { .. }
            | DriverError::Unsupported { .. }
            | DriverError::Lacks { .. } => Self::new(StatusCode::BAD_REQUEST, message),
            DriverError::NodeFull(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .with_code("sandbox_capacity_unavailable"),
            DriverError::TooSlow { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, message)
                .with_code("sandbox_placement_timeout")
                .caused_by(&error),
            DriverError::NoSpace | DriverError::TeamDisk { .. } | DriverError::DiskQuota => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, message)
            }
            DriverError::ImageNotFound(_) | DriverError::Step { .. } => {
                Self::internal(message).caused_by(&error)
            }
        }
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> Self {
        let message = error.to_string();
        match error {
            TemplateError::NotFound(_)
            | TemplateError::NoTag { .. }
            | TemplateError::NoBase { .. } => Self::not_found(message),
            TemplateError::Invalid(_) | TemplateError::Dynamic(_) => Self::invalid(message),
            TemplateError::InUse(..) | TemplateError::KeptTag { .. } => {
                Self::new(StatusCode::BAD_REQUEST, message)
            }
            TemplateError::Builtin(_) => Self::new(StatusCode::FORBIDDEN, message),
            TemplateError::Store(store) => store.into(),
            TemplateError::NotServed(absent) => absent.into(),
        }
    }
}

impl From<CatalogueError> for ApiError {
    fn from(error: CatalogueError) -> Self {
        let message = error.to_string();
        match error {
            CatalogueError::Invalid(_) | CatalogueError::Unfit(_) => Self::invalid(message),
            CatalogueError::Conflict { .. } | CatalogueError::Taken(_) => {
                Self::new(StatusCode::CONFLICT, message)
            }
            CatalogueError::Store(store) => store.into(),
            CatalogueError::NoBlueprint => Self::not_found(message),
        }
    }
}

impl From<SandboxError> for ApiError {
    fn from(error: SandboxError) -> Self {
        let message = error.to_string();
        match error {
            SandboxError::NotFound(_) | SandboxError::NoSuchName(_) => Self::not_found(message),
            SandboxError::Busy(_)
            | SandboxError::Paused(_)
            | SandboxError::NoTokens(_)
            | SandboxError::Refused(_)
            | SandboxError::Infeasible(_) => Self::new(StatusCode::CONFLICT, message),
            SandboxError::Unresponsive(_) => Self::new(StatusCode::CONFLICT, message)
                .with_code("sandbox_snapshot_guest_agent_unresponsive"),
            SandboxError::Interrupted(_) => Self::internal(message),
            // Not 409: to the SDKs, that would mean that the sandbox is already paused.
            SandboxError::NotSynced(inside) => {
                let message = wording::not_synced(&inside);
                Self::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("sandbox_sync_failed")
            }
            SandboxError::NotResumed(_) | SandboxError::NotWoken(_) => {
                Self::internal(message).with_code("sandbox_resume_failed")
            }
            SandboxError::NotSaved(_) => Self::internal(message).with_code("sandbox_not_saved"),
            SandboxError::Guest(inside) => inside.into(),
            SandboxError::Full(full) => full.into(),
            SandboxError::TimeoutTooLong(too_long) => too_long.into(),
            SandboxError::Runtime(forbidden) => forbidden.into(),
            SandboxError::TooManyForks(_) => Self::invalid(format_args!("`count`: {message}")),
            SandboxError::Snapshots { .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, message),
            SandboxError::Resources(_) => Self::invalid(message),
            SandboxError::Driver(driver) => driver.into(),
            SandboxError::Store(store) => store.into(),
            SandboxError::NotServed(absent) => absent.into(),
            SandboxError::Entropy(_) => Self::internal(message),
        }
    }
}

impl From<InsideError> for ApiError {
    fn from(error: InsideError) -> Self {
        let message = error.to_string();
        let status = match error {
            InsideError::External(external) => return of_external(&external, message),
            InsideError::Unreachable(_) | InsideError::Refused(_) => StatusCode::BAD_GATEWAY,
            InsideError::NotFound(_) => StatusCode::NOT_FOUND,
            InsideError::Invalid(_) | InsideError::UnknownUser(_) => StatusCode::BAD_REQUEST,
            InsideError::Denied(_) => StatusCode::FORBIDDEN,
            InsideError::NoSpace(_) => StatusCode::INSUFFICIENT_STORAGE,
            InsideError::TooMuch(_) => StatusCode::UNPROCESSABLE_ENTITY,
            InsideError::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        };
        Self::new(status, message)
    }
}

fn of_external(error: &ExternalError, message: String) -> ApiError {
    match error {
        ExternalError::Disabled => ApiError::new(StatusCode::NOT_IMPLEMENTED, message),
        ExternalError::EncryptedKey
        | ExternalError::UnsupportedKey(_)
        | ExternalError::UnreadableKey
        | ExternalError::NotAllowed(_) => ApiError::invalid(format_args!("`machine`: {message}")),
        ExternalError::Sealed | ExternalError::HostKeyChanged { .. } | ExternalError::Closed => {
            ApiError::new(StatusCode::CONFLICT, message)
        }
        ExternalError::Unresolved(_)
        | ExternalError::Unreachable { .. }
        | ExternalError::Refused(_)
        | ExternalError::NoSftp(_)
        | ExternalError::NoBash(_)
        | ExternalError::Lost(_) => ApiError::new(StatusCode::BAD_GATEWAY, message),
    }
}

impl From<TimeoutTooLong> for ApiError {
    fn from(error: TimeoutTooLong) -> Self {
        Self::new(StatusCode::BAD_REQUEST, wording::timeout_too_long(error))
    }
}

impl From<RuntimeForbidden> for ApiError {
    fn from(error: RuntimeForbidden) -> Self {
        Self::new(StatusCode::FORBIDDEN, error.to_string())
    }
}

impl From<TeamError> for ApiError {
    fn from(error: TeamError) -> Self {
        let message = error.to_string();
        match error {
            TeamError::Forbidden => Self::new(StatusCode::FORBIDDEN, message),
            TeamError::Driver(driver) => driver.into(),
            TeamError::Store(store) => store.into(),
            TeamError::NotServed(absent) => absent.into(),
            TeamError::Entropy(_) => Self::internal(message),
        }
    }
}

impl From<QuotaExceeded> for ApiError {
    fn from(full: QuotaExceeded) -> Self {
        let message = full.to_string();
        match full {
            QuotaExceeded::Team(_)
            | QuotaExceeded::Cpu { .. }
            | QuotaExceeded::Memory { .. }
            | QuotaExceeded::Machine { .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, message),
            QuotaExceeded::Key(_) => Self::new(StatusCode::FORBIDDEN, message),
            QuotaExceeded::Installation(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .with_code("sandbox_capacity_unavailable"),
        }
    }
}

impl From<TakeError> for ApiError {
    fn from(error: TakeError) -> Self {
        let message = error.to_string();
        match error {
            TakeError::Sandbox(sandbox) => sandbox.into(),
            TakeError::Name(name) => name.into(),
            TakeError::TooLong(_) => Self::new(StatusCode::GATEWAY_TIMEOUT, message),
        }
    }
}

impl From<SnapshotNameError> for ApiError {
    fn from(error: SnapshotNameError) -> Self {
        let status = match error {
            SnapshotNameError::Namespace(_) => StatusCode::FORBIDDEN,
            SnapshotNameError::Taken(_) => StatusCode::CONFLICT,
        };
        Self::new(status, error.to_string())
    }
}

impl From<BuildError> for ApiError {
    fn from(error: BuildError) -> Self {
        let message = error.to_string();
        let status = match error {
            BuildError::Namespace(_) => StatusCode::FORBIDDEN,
            BuildError::NotFound(_) => StatusCode::NOT_FOUND,
            BuildError::TooMany(_) | BuildError::TooManyAnnounced(_) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            BuildError::Taken(_)
            | BuildError::NotWaiting(..)
            | BuildError::Plan(_)
            | BuildError::Resources(_) => StatusCode::BAD_REQUEST,
            BuildError::Store(store) => return store.into(),
            BuildError::NotServed(absent) => return absent.into(),
            BuildError::Entropy(_) => return Self::internal(message),
        };
        Self::new(status, message)
    }
}

impl From<BuiltinError> for ApiError {
    fn from(error: BuiltinError) -> Self {
        let message = error.to_string();
        match error {
            BuiltinError::Unknown { .. } => Self::not_found(message),
            BuiltinError::Forbidden(_) => Self::new(StatusCode::FORBIDDEN, message),
            BuiltinError::AdminsOnly(template) => {
                Self::new(StatusCode::FORBIDDEN, wording::admins_only(&template))
            }
            BuiltinError::NotBuilt(..) => Self::new(StatusCode::TOO_MANY_REQUESTS, message),
            BuiltinError::Store(store) => store.into(),
            BuiltinError::NotServed(absent) => absent.into(),
            BuiltinError::Files(_, error) => Self::internal(message).caused_by(&error),
            BuiltinError::Entropy(_) => Self::internal(message),
        }
    }
}

impl From<TagError> for ApiError {
    fn from(error: TagError) -> Self {
        let message = error.to_string();
        match error {
            TagError::Template(template) => template.into(),
            TagError::Default | TagError::Last | TagError::NotBuilt(_) | TagError::NotKept(_) => {
                Self::new(StatusCode::BAD_REQUEST, message)
            }
            TagError::Store(store) => store.into(),
        }
    }
}

impl From<SnapshotError> for ApiError {
    fn from(error: SnapshotError) -> Self {
        let message = error.to_string();
        match error {
            SnapshotError::NotFound(_) => Self::not_found(message),
            SnapshotError::Name(name) => name.into(),
            SnapshotError::OnlyTag(_) => Self::new(StatusCode::CONFLICT, message),
            SnapshotError::LiveToken(sandbox) => {
                Self::new(StatusCode::CONFLICT, wording::live_token(&sandbox))
            }
            SnapshotError::Driver(driver) => driver.into(),
            SnapshotError::Full(full) => full.into(),
            SnapshotError::Store(store) => store.into(),
            SnapshotError::NotServed(absent) => absent.into(),
            SnapshotError::Entropy(_) => Self::internal(message),
        }
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        let message = error.to_string();
        match error {
            KeyError::NotFound(_) => Self::not_found(message),
            KeyError::Forbidden => Self::new(StatusCode::FORBIDDEN, message),
            KeyError::InvalidName | KeyError::NoTeam(_) => Self::invalid(message),
            KeyError::Itself => Self::new(StatusCode::CONFLICT, message),
            KeyError::Store(store) => store.into(),
            KeyError::Entropy(_) => Self::internal(message),
            KeyError::NotServed(absent) => absent.into(),
        }
    }
}

impl From<CreateTemplateError> for ApiError {
    fn from(error: CreateTemplateError) -> Self {
        let message = error.to_string();
        match error {
            CreateTemplateError::NameTaken(_) => Self::new(StatusCode::CONFLICT, message),
            CreateTemplateError::ImageMissing(_) => Self::not_found(message),
            CreateTemplateError::Resources(_) | CreateTemplateError::RuntimeMissing { .. } => {
                Self::new(StatusCode::BAD_REQUEST, message)
            }
            CreateTemplateError::Image(image) => image.into(),
            CreateTemplateError::Template(template) => template.into(),
            CreateTemplateError::Entropy(_) => Self::internal(message),
        }
    }
}

impl From<ImageError> for ApiError {
    /// For an operator's operation: an operator may see the machine's errors.
    fn from(error: ImageError) -> Self {
        let message = match &error {
            ImageError::Io {
                action,
                path,
                source,
            } => format!("cannot {action} {}: {source}", path.display()),
            ImageError::Tool { tool, detail } => format!("{tool} failed: {detail}"),
            error => error.to_string(),
        };
        Self::new(status_of_image(&error), message)
    }
}

fn status_of_image(error: &ImageError) -> StatusCode {
    match error {
        ImageError::NotFound(_) => StatusCode::NOT_FOUND,
        ImageError::Unreachable { .. } => StatusCode::BAD_GATEWAY,
        ImageError::Unauthorized(_) => StatusCode::FORBIDDEN,
        ImageError::NotServed(_) => StatusCode::NOT_IMPLEMENTED,
        ImageError::WrongArchitecture(..)
        | ImageError::Corrupt { .. }
        | ImageError::Refused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ImageError::InUse(..) => StatusCode::CONFLICT,
        ImageError::NoSpace(_) => StatusCode::INSUFFICIENT_STORAGE,
        ImageError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            StatusCode::NOT_FOUND
        }
        ImageError::Tool { .. } | ImageError::Io { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<InvalidRule> for ApiError {
    fn from(error: InvalidRule) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<InvalidHostMask> for ApiError {
    fn from(error: InvalidHostMask) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

#[cfg(test)]
mod tests;
