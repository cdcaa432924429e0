//! Blocking work, off the threads of the runtime.

use std::io;

use shoal_core::detail::HostDetail;
use shoal_core::driver::DriverError;
use tokio::task::JoinError;
use tracing::Span;

/// Blocking work that did not return: it panicked, or the runtime stopped before it started.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Interrupted(JoinError);

impl Interrupted {
    /// Continues the panic on this thread; returns if instead the runtime has stopped.
    pub fn resume_panic(self) {
        if let Ok(panic) = self.0.try_into_panic() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl From<Interrupted> for io::Error {
    fn from(interrupted: Interrupted) -> Self {
        Self::other(interrupted)
    }
}

impl From<Interrupted> for DriverError {
    fn from(interrupted: Interrupted) -> Self {
        Self::Step {
            step: "finish a task",
            detail: HostDetail::new(io::Error::from(interrupted)),
        }
    }
}

/// Runs `work` on a thread that may block, in the span of the caller.
///
/// # Errors
/// The errors of `work`; [`Interrupted`] when it does not return.
pub async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Interrupted> + Send + 'static,
{
    let span = Span::current();
    let work = move || span.in_scope(work);
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(Interrupted(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_the_work_is_an_error_of_the_caller() {
        let done: io::Result<u8> = blocking(|| Ok(7)).await;
        assert_eq!(done.unwrap(), 7);
        let panicked: io::Result<()> = blocking(|| panic!("on purpose")).await;
        assert_eq!(panicked.unwrap_err().kind(), io::ErrorKind::Other);
        let panicked: Result<(), DriverError> = blocking(|| panic!("on purpose")).await;
        assert!(matches!(panicked, Err(DriverError::Step { .. })));
    }
}
