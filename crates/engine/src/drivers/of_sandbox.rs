//! The driver of one sandbox, with typed errors for the capabilities that it lacks.

use std::ops::Deref;
use std::sync::Arc;

use shoal_core::driver::{Capability, Checkpointer, Driver, DriverError, EgressFilter, Resizer};
use shoal_core::template::RuntimeName;

/// The driver of one sandbox.
#[derive(Clone)]
pub(crate) struct SandboxDriver {
    driver: Arc<dyn Driver>,
    /// The runtime of the sandbox, if it is known.
    runtime: Option<RuntimeName>,
}

impl Deref for SandboxDriver {
    type Target = dyn Driver;

    fn deref(&self) -> &Self::Target {
        self.driver.as_ref()
    }
}

impl SandboxDriver {
    pub(super) fn new(driver: Arc<dyn Driver>, runtime: Option<&RuntimeName>) -> Self {
        let runtime = runtime.cloned();
        Self { driver, runtime }
    }

    /// Pauses and snapshots.
    ///
    /// # Errors
    /// [`DriverError::Lacks`].
    pub(crate) fn checkpoints(&self) -> Result<&dyn Checkpointer, DriverError> {
        let has = self.driver.checkpointer();
        has.ok_or_else(|| self.without(Capability::Checkpoint))
    }

    /// Changes of limits.
    ///
    /// # Errors
    /// [`DriverError::Lacks`].
    pub(crate) fn resizes(&self) -> Result<&dyn Resizer, DriverError> {
        let has = self.driver.resizer();
        has.ok_or_else(|| self.without(Capability::Resize))
    }

    /// Changes of egress rules.
    ///
    /// # Errors
    /// [`DriverError::Lacks`].
    pub(crate) fn filters_egress(&self) -> Result<&dyn EgressFilter, DriverError> {
        let has = self.driver.egress_filter();
        has.ok_or_else(|| self.without(Capability::Egress))
    }

    fn without(&self, capability: Capability) -> DriverError {
        Self::lacks(self.driver.as_ref(), self.runtime.as_ref(), capability)
    }

    /// The error for a capability that `driver` lacks. Without a known runtime it names the default.
    pub(super) fn lacks(
        driver: &dyn Driver,
        runtime: Option<&RuntimeName>,
        capability: Capability,
    ) -> DriverError {
        let usual = driver.capabilities().runtimes.first();
        match runtime.or(usual.map(|info| &info.name)) {
            Some(runtime) => DriverError::Lacks {
                runtime: runtime.clone(),
                capability,
            },
            None => DriverError::NodeFull("runtime"),
        }
    }
}
