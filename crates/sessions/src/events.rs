//! The events of one session, for its listeners. Without a listener they cost nothing.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::clock::Clock;
use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::ExecEnd;
use shoal_core::ports::sessions::events::{SessionEvent, SessionFact};
use shoal_core::session::WindowName;
use tokio::sync::broadcast;

/// How many events wait for a slow listener. A slower one misses some, and learns that.
const KEPT: usize = 256;

/// The events of one session. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    listeners: Mutex<Listeners>,
    /// The last machine whose end was reported: several callers notice the same end.
    ended: Mutex<Option<SandboxId>>,
}

enum Listeners {
    /// No listener was there since the last event.
    None,
    Some(broadcast::Sender<SessionEvent>),
    /// The session is deleted.
    Over,
}

impl Events {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            clock,
            listeners: Mutex::new(Listeners::None),
            ended: Mutex::default(),
        }))
    }

    /// The events from now on. They end with the session.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        let mut listeners = self.0.listeners.lock();
        match &*listeners {
            Listeners::Some(sender) => sender.subscribe(),
            Listeners::Over => broadcast::channel(1).1,
            Listeners::None => {
                let (sender, receiver) = broadcast::channel(KEPT);
                *listeners = Listeners::Some(sender);
                receiver
            }
        }
    }

    /// Whether anybody listens.
    pub(crate) fn is_heard(&self) -> bool {
        let listeners = self.0.listeners.lock();
        matches!(&*listeners, Listeners::Some(sender) if sender.receiver_count() > 0)
    }

    /// Tells that something has happened.
    pub(crate) fn tell(&self, fact: SessionFact) {
        let at = self.0.clock.now();
        let mut listeners = self.0.listeners.lock();
        if let Listeners::Some(sender) = &*listeners
            && sender.send(SessionEvent { at, fact }).is_err()
        {
            // The last listener has gone.
            *listeners = Listeners::None;
        }
    }

    /// Tells the end of a machine, once.
    pub(crate) fn machine_ended(&self, sandbox: Option<&SandboxId>) {
        let Some(sandbox) = sandbox else {
            return;
        };
        let former = self.0.ended.lock().replace(sandbox.clone());
        if former.as_ref() != Some(sandbox) {
            self.tell(SessionFact::MachineEnded(sandbox.clone()));
        }
    }

    /// Tells that the session is deleted, and nothing more.
    pub(crate) fn over(&self) {
        self.tell(SessionFact::Deleted);
        *self.0.listeners.lock() = Listeners::Over;
    }
}

/// The events of one window.
#[derive(Clone)]
pub struct WindowEvents {
    pub(crate) events: Events,
    pub(crate) window: WindowName,
}

impl WindowEvents {
    pub(crate) fn opened(&self) {
        let window = self.window.clone();
        self.events.tell(SessionFact::WindowOpened(window));
    }

    pub(crate) fn closed(&self) {
        let window = self.window.clone();
        self.events.tell(SessionFact::WindowClosed(window));
    }

    /// A command has started; secrets are hidden in `command`.
    pub(crate) fn started(&self, command: String) {
        let window = self.window.clone();
        self.events
            .tell(SessionFact::CommandStarted { window, command });
    }

    pub(crate) fn ended(&self, end: ExecEnd) {
        let window = self.window.clone();
        self.events.tell(SessionFact::CommandEnded { window, end });
    }
}
