//! Checks of the machine, with what would fix it.

use serde::Serialize;

use super::NotServed;
use crate::BoxFuture;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Fine.
    Good,
    /// The server starts, but a feature will be missing or degraded.
    Warning,
    /// The server does not start.
    Missing,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject.
    pub what: &'static str,
    /// The result.
    pub health: Health,
    /// The details.
    pub detail: String,
    /// A command or an instruction that fixes it.
    pub cure: Option<String>,
}

impl Finding {
    /// A successful check.
    #[must_use]
    pub fn good(what: &'static str, detail: impl Into<String>) -> Self {
        Self {
            what,
            health: Health::Good,
            detail: detail.into(),
            cure: None,
        }
    }

    /// A failed check, with its fix.
    #[must_use]
    pub fn bad(
        what: &'static str,
        health: Health,
        detail: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            what,
            health,
            detail: detail.into(),
            cure: Some(cure.into()),
        }
    }
}

/// The checks of the installation.
pub trait Doctor: Send + Sync {
    /// Checks everything, and changes nothing.
    ///
    /// # Errors
    /// When the backend has no machine of its own.
    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>, NotServed>>;
}

/// The checks of a backend without a machine of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDoctor;

impl Doctor for NoDoctor {
    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>, NotServed>> {
        Box::pin(async {
            Err(NotServed {
                what: "a check of the machine",
                instead: "`kubectl get nodes` and `kubectl get events` say what a cluster lacks",
            })
        })
    }
}
