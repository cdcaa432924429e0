//! The attempt to wake one sandbox, shared by all who want it.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::routes::{NotResumed, Route};
use tokio::sync::watch;

/// The outcome of one attempt, once it is known.
pub(super) type Outcome = Option<Result<Arc<Route>, NotResumed>>;

/// The attempt in progress to wake one sandbox. Later callers share it and its outcome: a thousand
/// waiting requests are one command, and one failure.
#[derive(Debug, Default)]
pub(crate) struct Waking(Mutex<Option<watch::Receiver<Outcome>>>);

impl Waking {
    /// The attempt that is under way, or a new one, which `begin` carries out.
    pub(super) fn join(
        &self,
        begin: impl FnOnce(watch::Sender<Outcome>),
    ) -> watch::Receiver<Outcome> {
        let mut current = self.0.lock();
        let under_way = |attempt: &&watch::Receiver<Outcome>| {
            // Without a sender it will not end: its task has gone with the runtime.
            attempt.borrow().is_none() && attempt.has_changed().is_ok()
        };
        if let Some(attempt) = current.as_ref().filter(under_way) {
            return attempt.clone();
        }
        let (ends, attempt) = watch::channel(None);
        begin(ends);
        *current = Some(attempt.clone());
        attempt
    }
}
