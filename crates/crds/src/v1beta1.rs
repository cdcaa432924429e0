//! Version v1beta1, the storage version.

mod claim;
mod pool;
mod sandbox;
mod template;

pub use claim::{SandboxClaim, SandboxClaimSpec};
pub use pool::{SandboxWarmPool, SandboxWarmPoolSpec, SandboxWarmPoolStatus};
pub use sandbox::{OperatingMode, Sandbox, SandboxSpec, SandboxStatus};
pub use template::{SandboxTemplate, SandboxTemplateSpec, SandboxTemplateStatus};
