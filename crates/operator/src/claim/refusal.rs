//! Why a claim has no sandbox, as its `Ready` condition says.

use std::time::Duration;

use crate::failure::Failure;

/// A claim that cannot be served now.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) retry: Retry,
}

/// When a refused claim is tried again.
#[derive(Debug)]
pub(super) enum Retry {
    /// When the claim, or an object that it refers to, changes.
    Never,
    /// After this time, too.
    After(Duration),
    /// With a growing delay.
    Backoff(Box<Failure>),
    /// After this time. The status stays as it is.
    Quietly(Duration),
}

impl Refusal {
    /// A claim that fails until it, or an object that it refers to, is changed.
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry: Retry::Never,
        }
    }

    /// A pool or template that does not exist.
    pub(super) fn missing(reason: &'static str, kind: &str, name: &str) -> Self {
        let retry = Retry::After(Duration::from_secs(60));
        Self {
            reason,
            message: format!("{kind} {name:?} not found"),
            retry,
        }
    }

    /// An error that may go away by itself.
    pub(super) fn error(message: impl Into<String>) -> Self {
        Failure::Refused(message.into()).into()
    }

    /// Wait, without a word.
    pub(super) fn quietly(wait: Duration) -> Self {
        Self {
            reason: "",
            message: String::new(),
            retry: Retry::Quietly(wait),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let message = format!("Error seen: {failure}");
        Self {
            reason: "ReconcilerError",
            message,
            retry: Retry::Backoff(Box::new(failure)),
        }
    }
}

impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        Failure::from(error).into()
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Failure::from(error).into()
    }
}
