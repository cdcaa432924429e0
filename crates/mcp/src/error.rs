//! Failures of tools. The agent reads their texts, so each says what to do.

use std::fmt;

use shoal_core::audit::AuditResult;
use shoal_core::detail::Chain;
use shoal_core::driver::DriverError;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::snapshots::TakeError;
use shoal_core::store::StoreError;

/// A failed call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolError {
    /// A stable word for programs.
    pub(crate) code: &'static str,
    /// The failure and its cure, for the agent.
    pub(crate) message: String,
    pub(crate) result: AuditResult,
}

impl ToolError {
    /// The arguments are wrong, or the state does not allow it.
    pub(crate) fn refused(code: &'static str, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
            result: AuditResult::Refused,
        }
    }

    /// An argument is wrong.
    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self::refused("invalid_argument", message)
    }

    /// The client cancelled the call, or its session ended.
    pub(crate) fn cancelled() -> Self {
        Self::refused("cancelled", "the call was cancelled")
    }

    /// The server failed: logged here, once.
    fn failed(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %Chain(error), "a tool failed");
        Self {
            code: "server_error",
            message: error.to_string(),
            result: AuditResult::Failed,
        }
    }
}

impl From<SandboxError> for ToolError {
    fn from(error: SandboxError) -> Self {
        let code = match &error {
            SandboxError::NotFound(_) | SandboxError::NoSuchName(_) => "not_found",
            SandboxError::Paused(_) => "paused",
            SandboxError::Busy(_) => "busy",
            SandboxError::Full(_) | SandboxError::Snapshots { .. } => "limit",
            SandboxError::Guest(_) | SandboxError::Unresponsive(_) => "unreachable",
            SandboxError::Driver(driver) if is_ours(driver) => return Self::failed(&error),
            SandboxError::Store(store) if is_broken(store) => return Self::failed(&error),
            SandboxError::Entropy(_) => return Self::failed(&error),
            _ => "refused",
        };
        Self::refused(code, error)
    }
}

impl From<CreateError> for ToolError {
    fn from(error: CreateError) -> Self {
        let code = match &error {
            CreateError::Template(_) => "template",
            CreateError::BeingBuilt { .. } => "being_built",
            CreateError::Full(_) => "limit",
            CreateError::Driver(driver) if is_ours(driver) => return Self::failed(&error),
            CreateError::Store(store) if is_broken(store) => return Self::failed(&error),
            CreateError::Entropy(_) => return Self::failed(&error),
            _ => "refused",
        };
        Self::refused(code, error)
    }
}

impl From<TakeError> for ToolError {
    fn from(error: TakeError) -> Self {
        match error {
            TakeError::Sandbox(error) => error.into(),
            other => Self::refused("refused", other),
        }
    }
}

impl From<InsideError> for ToolError {
    fn from(error: InsideError) -> Self {
        let code = match &error {
            InsideError::Unreachable(_) => "unreachable",
            InsideError::NotFound(_) => "not_found",
            InsideError::Denied(_) => "denied",
            InsideError::NoSpace(_) => "no_space",
            InsideError::TimedOut => "timeout",
            _ => "refused",
        };
        Self::refused(code, error)
    }
}

/// Whether the machine failed, not the request.
fn is_ours(error: &DriverError) -> bool {
    matches!(
        error,
        DriverError::ImageNotFound(_) | DriverError::Step { .. }
    )
}

fn is_broken(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { .. } | StoreError::Failed(_))
}
