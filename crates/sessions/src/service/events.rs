//! Subscriptions of events.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use shoal_core::auth::Principal;
use shoal_core::ports::observe::{EventKind, Scope, Seen, SeenStream};
use shoal_core::ports::sessions::SessionError;
use shoal_core::ports::sessions::events::{SessionEvent, SessionSeen, SessionSeenStream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Service;
use super::live::Live;

/// A listener of a session.
struct Listener {
    live: Arc<Live>,
    events: broadcast::Receiver<SessionEvent>,
    /// Events of the team's sandboxes: a machine may end by itself.
    sandboxes: Option<SeenStream>,
}

impl Service {
    /// The events of a session from now on.
    pub(super) fn follow(
        &self,
        principal: &Principal,
        id: &str,
    ) -> Result<SessionSeenStream, SessionError> {
        let live = self.find(principal, id)?;
        // Without it, the end of a machine is reported when the session notices it.
        let sandboxes = self.parts.events.subscribe(principal, Scope::Team).ok();
        let listener = Listener {
            events: live.events.subscribe(),
            sandboxes,
            live,
        };
        listener.live.files.tell_sync_anew();
        let seen = stream::unfold(listener, async |mut listener| {
            Some((listener.next().await?, listener))
        });
        Ok(seen.boxed())
    }
}

impl Listener {
    async fn next(&mut self) -> Option<SessionSeen> {
        loop {
            tokio::select! {
                event = self.events.recv() => return match event {
                    Ok(event) => Some(SessionSeen::Event(event)),
                    Err(RecvError::Lagged(_)) => Some(SessionSeen::Lagged),
                    Err(RecvError::Closed) => None,
                },
                seen = next(&mut self.sandboxes) => match seen {
                    Some(Seen::Event(event)) => {
                        let machine = self.live.record().sandbox;
                        if event.kind == EventKind::Killed && machine.as_ref() == Some(&event.sandbox) {
                            self.live.events.machine_ended(machine.as_ref());
                        }
                    }
                    Some(Seen::Lagged) => return Some(SessionSeen::Lagged),
                    None => self.sandboxes = None,
                },
            }
        }
    }
}

/// The next one; never, when there are none.
async fn next(stream: &mut Option<SeenStream>) -> Option<Seen> {
    match stream {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}
