//! A gate at which a fake waits until a test opens it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// Open until a test shuts it. Callers then wait until it is opened again.
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
    /// Makes further callers wait.
    pub fn shut(&self) {
        self.shut.send_replace(true);
    }

    /// Lets the waiting callers and all later ones pass.
    pub fn open(&self) {
        self.shut.send_replace(false);
    }

    /// How many callers wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// How many callers have passed.
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
