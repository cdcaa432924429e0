//! Version v1alpha1, served and deprecated.

mod claim;
mod pool;
mod sandbox;
mod template;

pub use claim::{DEFAULT_POOL, NO_POOL, SandboxClaim, SandboxClaimSpec};
pub use pool::{SandboxWarmPool, SandboxWarmPoolSpec, SandboxWarmPoolStatus};
pub use sandbox::{Sandbox, SandboxSpec, SandboxStatus};
pub use template::{SandboxTemplate, SandboxTemplateSpec, SandboxTemplateStatus};
