//! Why no sandbox was created.

use shoal_core::driver::DriverError;
use shoal_core::image::ImageError;
use shoal_core::network::InvalidRule;
use shoal_core::resources::InvalidResources;
use shoal_core::store::StoreError;
use shoal_core::template::TemplateName;

use crate::engine::SandboxError;
use crate::entropy::NoEntropy;
use crate::guest::GuestError;
use crate::names::NameError;
use crate::resolve::Resolved;
use crate::room::NoRoom;
use crate::runtimes::RuntimeForbidden;
use crate::set_timeout::TimeoutTooLong;
use crate::stock::StockError;
use crate::templates::TemplateError;

/// Why no sandbox was created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Nothing was named, and there is no default.
    #[error("neither a template nor an image is named, and no default is configured")]
    NoTemplate,
    /// The template is the installation's, and is not there yet.
    #[error(
        "template '{template}' is being built for the first time, which takes some minutes: try again \
         then; `shoal template build --watch {build}` shows how far it is"
    )]
    BeingBuilt {
        /// What the template is called.
        template: TemplateName,
        /// The build, as it can be watched.
        build: String,
    },
    /// The template is the installation's, and could not be built.
    #[error(
        "template '{template}' could not be built: {reason}; it is tried again a minute later, and at \
         once when an admin runs `shoal template build {template}`"
    )]
    NotBuilt {
        /// What the template is called.
        template: TemplateName,
        /// Why.
        reason: String,
    },
    /// It could not be built at all.
    #[error(transparent)]
    Stock(#[from] StockError),
    /// The image of the template cannot be had.
    #[error("template '{template}' cannot be started: {error}")]
    Image {
        /// What the template is called.
        template: String,
        /// Why.
        #[source]
        error: ImageError,
    },
    /// The caller may not name an image.
    #[error(
        "only an admin key may name an image: name a template, or set `templates.custom_images`"
    )]
    ImageForbidden,
    /// The caller may not choose this runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeForbidden),
    /// A snapshot has the image that it was taken with.
    #[error("a snapshot cannot be started with another image: leave `image` out")]
    ImageOfSnapshot,
    /// The life asked for is too long.
    #[error(transparent)]
    TimeoutTooLong(#[from] TimeoutTooLong),
    /// The caller may not make a sandbox without a deadline.
    #[error(
        "only an admin key may make a sandbox that never times out: give it a timeout, or set \
         `limits.never_timeout`"
    )]
    EndlessForbidden,
    /// The life asked for is zero.
    #[error("Timeout must be greater than 0")]
    NoTimeout,
    /// A limit makes no sense.
    #[error(transparent)]
    Resources(#[from] InvalidResources),
    /// A rule of the network makes no sense.
    #[error(transparent)]
    Network(#[from] InvalidRule),
    /// The name cannot be one, or another sandbox has it.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There are as many sandboxes as there may be.
    #[error(transparent)]
    Full(#[from] NoRoom),
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyMismatch,
    /// The same request is still under way.
    #[error("a request with this idempotency key is still in progress")]
    IdempotencyInProgress,
    /// The same request made a sandbox that is gone since.
    #[error("the sandbox that this idempotency key made is gone")]
    IdempotencyGone,
    /// The driver could not make it.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// What its template starts in it does not run.
    #[error("the start command of its template failed: {0}")]
    Start(String),
    /// It was made and does not answer.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// It was ended while it was made.
    #[error(transparent)]
    Sandbox(SandboxError),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl CreateError {
    /// The image of what was resolved cannot be had.
    pub(crate) fn image(resolved: &Resolved, error: ImageError) -> Self {
        let name = resolved.name.clone();
        Self::Image {
            template: name.unwrap_or_else(|| resolved.id.to_string()),
            error,
        }
    }
}

impl From<SandboxError> for CreateError {
    /// What has a name of its own here keeps it.
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::Driver(driver) => Self::Driver(driver),
            SandboxError::Guest(guest) => Self::Guest(guest),
            SandboxError::Store(store) => Self::Store(store),
            SandboxError::Full(full) => Self::Full(full),
            SandboxError::Resources(resources) => Self::Resources(resources),
            SandboxError::Entropy(entropy) => Self::Entropy(entropy),
            SandboxError::Runtime(forbidden) => Self::Runtime(forbidden),
            other => Self::Sandbox(other),
        }
    }
}
