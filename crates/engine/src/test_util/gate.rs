//! A place where a fake stops until a test lets it go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// Open, until a test shuts it: whoever comes then waits until it is opened.
#[derive(Debug, Clone)]
pub struct Gate {
    shut: watch::Sender<bool>,
    waiting: Arc<AtomicUsize>,
    passed: Arc<AtomicUsize>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            shut: watch::Sender::new(false),
            waiting: Arc::default(),
            passed: Arc::default(),
        }
    }
}

impl Gate {
    /// Lets nobody pass from now on.
    pub fn shut(&self) {
        self.shut.send_replace(true);
    }

    /// Lets everybody pass who waits, and who comes.
    pub fn open(&self) {
        self.shut.send_replace(false);
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// How many have passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }

    /// Waits until it is open.
    pub(super) async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut shut = self.shut.subscribe();
        // The sender lives as long as `self` does.
        let _ = shut.wait_for(|shut| !shut).await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.passed.fetch_add(1, Ordering::SeqCst);
    }
}
