//! One session in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::clock::Timestamp;
use shoal_core::id::ExecutionId;
use shoal_core::ports::external::ExternalClient;
use shoal_core::ports::sessions::preview::{Forwarding, Preview};
use shoal_core::ports::sessions::{ResetQuestion, SessionView, WindowView};
use shoal_core::session::{SessionRecord, WindowName};
use shoal_core::store::{SessionStore, StoreError};
use tokio::sync::watch;

use super::preview::Published;
use crate::events::Events;
use crate::files::Files;
use crate::files::follow::Connection;
use crate::secrets::Secrets;
use crate::window::Window;

/// A session in memory.
pub(super) struct Live {
    record: Mutex<SessionRecord>,
    /// Held while the stored record changes, so that the last change is stored last.
    storing: tokio::sync::Mutex<()>,
    /// Held while the machine starts or ends, and while a window opens.
    pub(super) machine: tokio::sync::Mutex<()>,
    /// Its files.
    pub(super) files: Arc<Files>,
    /// The sync of its machine's files.
    pub(super) connection: tokio::sync::Mutex<Option<Connection>>,
    /// Its external machine, while that is used.
    pub(super) external: Mutex<Option<External>>,
    /// The open windows of the machine. Some may have closed by themselves.
    windows: Mutex<BTreeMap<WindowName, Window>>,
    /// The secrets of the windows.
    pub(super) secrets: watch::Sender<Secrets>,
    /// The number of commands that run.
    running: AtomicUsize,
    /// The question of a reset that waits for its confirmation.
    pub(super) question: Mutex<Option<ResetQuestion>>,
    /// The notice about the machine in the next command's output.
    pub(super) notice: Mutex<Option<String>>,
    deleting: AtomicBool,
    pub(super) published: Published,
    /// The listeners to its events.
    pub(super) events: Events,
}

/// An external machine that is used.
#[derive(Clone)]
pub(super) struct External {
    pub(super) client: Arc<dyn ExternalClient>,
    /// Identifies its use among all that runs.
    pub(super) execution: ExecutionId,
}

impl Live {
    pub(super) fn new(
        record: SessionRecord,
        files: Arc<Files>,
        published: Published,
        events: Events,
    ) -> Self {
        Self {
            events,
            files,
            connection: tokio::sync::Mutex::default(),
            record: Mutex::new(record),
            storing: tokio::sync::Mutex::default(),
            machine: tokio::sync::Mutex::default(),
            external: Mutex::default(),
            windows: Mutex::default(),
            secrets: watch::Sender::default(),
            running: AtomicUsize::new(0),
            question: Mutex::default(),
            notice: Mutex::default(),
            deleting: AtomicBool::new(false),
            published,
        }
    }

    pub(super) fn record(&self) -> SessionRecord {
        self.record.lock().clone()
    }

    pub(super) fn preview(&self) -> Preview {
        let external = self.external.lock().clone();
        let record = self.record.lock();
        let forwarding = external.map(|external| Forwarding {
            ports: external.client,
            execution: external.execution,
            team: record.team,
        });
        // An external machine has no address.
        let is_reached = record.external.is_none() || forwarding.is_some();
        Preview {
            machine: record.sandbox.clone().filter(|_| is_reached),
            forwarding,
            wakes: record.wakes.allowed && record.external.is_none(),
        }
    }

    /// Changes the record, and stores it first.
    pub(super) async fn update(
        &self,
        store: &dyn SessionStore,
        change: impl FnOnce(&mut SessionRecord),
    ) -> Result<(), StoreError> {
        let _last = self.storing.lock().await;
        let mut changed = self.record();
        change(&mut changed);
        store.put_session(&changed).await?;
        *self.record.lock() = changed;
        Ok(())
    }

    pub(super) fn view(&self) -> SessionView {
        SessionView {
            record: self.record(),
            windows: self.windows(),
            ends_at: self.deadline(),
            public_hostname: self.published.hostname.clone(),
        }
    }

    /// The windows that are open.
    pub(super) fn windows(&self) -> Vec<WindowView> {
        let windows = self.windows.lock();
        let states = windows.iter().map(|(name, window)| (name, window.state()));
        let open = states.filter(|(_, state)| !state.closed);
        open.map(|(name, state)| WindowView {
            name: name.clone(),
            running: state.running,
            active: state.active,
        })
        .collect()
    }

    /// The window with this name, if it is open.
    pub(super) fn window(&self, name: &WindowName) -> Option<Window> {
        let mut windows = self.windows.lock();
        windows.retain(|_, window| !window.state().closed);
        windows.get(name).cloned()
    }

    pub(super) fn opened(&self, name: WindowName, window: Window) {
        self.windows.lock().insert(name, window);
    }

    /// Forgets a window that is closing. Another may be open in its place.
    pub(super) fn forget(&self, name: &WindowName, window: &Window) {
        let mut windows = self.windows.lock();
        if windows.get(name).is_some_and(|open| open.is(window)) {
            windows.remove(name);
        }
    }

    /// Closes all windows: their machine has ended.
    pub(super) fn close_windows(&self) {
        self.windows.lock().clear();
        self.secrets.send_replace(Secrets::default());
    }

    pub(super) fn delete_begins(&self) {
        self.deleting.store(true, Ordering::Release);
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deleting.load(Ordering::Acquire)
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    /// Counts a command until the guard is dropped.
    pub(super) fn command_begins(self: &Arc<Self>) -> CommandGuard {
        self.running.fetch_add(1, Ordering::AcqRel);
        CommandGuard(self.clone())
    }

    /// When the machine ends; none without a machine, and while a command runs.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let record = self.record.lock();
        record.sandbox.as_ref()?;
        record.life.deadline(self.running())
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

impl Live {
    /// Whether the machine's time was over so long ago.
    pub(super) fn is_over_since(&self, now: Timestamp, time: Duration) -> bool {
        let deadline = self.deadline();
        deadline.is_some_and(|deadline| deadline + time <= now)
    }

    /// The machine's files are not kept equal any more: it ends.
    pub(super) async fn disconnect(&self) {
        *self.connection.lock().await = None;
        self.files.no_machine().await;
        if let Some(external) = self.external.lock().take() {
            external.client.close();
        }
    }
}

/// A command that runs.
pub(super) struct CommandGuard(Arc<Live>);

impl Drop for CommandGuard {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}
