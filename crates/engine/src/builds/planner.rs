//! The port through which builds plan their sandboxes.

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::driver::RuntimeInfo;
use shoal_core::image::{Image, ImageName};
use shoal_core::ports::create::{CreateError, NewSandbox};
use shoal_core::ports::resolve::Resolved;
use shoal_core::sandbox::SandboxSpec;

/// The plan of a sandbox.
pub(crate) struct Planned {
    pub(crate) spec: SandboxSpec,
    /// What the name of its template refers to.
    pub(crate) resolved: Resolved,
    /// Its image, when the template does not specify everything.
    pub(crate) image: Option<Image>,
}

/// Plans the sandboxes of builds, by the same rules as those of clients.
pub(crate) trait Planner: Send + Sync {
    /// Plans the sandbox that a request describes. `image` is its image, if it was fetched already.
    ///
    /// # Errors
    /// See [`CreateError`].
    fn plan<'a>(
        &'a self,
        principal: &'a Principal,
        new: NewSandbox,
        image: Option<Image>,
    ) -> BoxFuture<'a, Result<Planned, CreateError>>;

    /// Plans a sandbox whose template is resolved already.
    ///
    /// # Errors
    /// See [`CreateError`].
    fn plan_resolved<'a>(
        &'a self,
        principal: &'a Principal,
        resolved: Resolved,
        new: NewSandbox,
    ) -> BoxFuture<'a, Result<Planned, CreateError>>;

    /// Checks that the caller may name this image.
    ///
    /// # Errors
    /// See [`CreateError`].
    fn check_image(&self, principal: &Principal, image: &ImageName) -> Result<(), CreateError>;

    /// The runtime of a sandbox, if it can save memory.
    fn memory_runtime(&self, spec: &SandboxSpec) -> Option<RuntimeInfo>;
}
