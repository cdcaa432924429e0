//! The previews of sessions: the questions of the data path.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::SessionError;
use shoal_core::ports::sessions::preview::{Preview, Previews, Waking};
use shoal_core::session::preview::{PreviewDomain, PreviewHash};
use shoal_core::session::{SessionRecord, WindowName};

use super::live::Live;
use super::{Service, SessionService, random};

/// The variable with the host name of the preview, in every window.
pub(super) const PUBLIC_HOSTNAME: &str = "PUBLIC_HOSTNAME";

/// The preview of a session in memory.
pub(super) struct Published {
    hash: PreviewHash,
    pub(super) hostname: String,
    /// Whether the machine starts for a request.
    waking: AtomicBool,
}

impl Published {
    /// The preview of a session, which gets a hash if it has none yet; whether it got one.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(super) fn of(
        record: &mut SessionRecord,
        domain: &PreviewDomain,
    ) -> Result<(Self, bool), SessionError> {
        let kept = record.preview.take();
        let is_new = kept.is_none();
        let hash = kept.map_or_else(|| random().map(PreviewHash::from_entropy), Ok)?;
        record.preview = Some(hash.clone());
        let published = Self {
            hostname: domain.host(&hash),
            hash,
            waking: AtomicBool::new(false),
        };
        Ok((published, is_new))
    }

    #[cfg(test)]
    pub(super) fn is_waking(&self) -> bool {
        self.waking.load(Ordering::Acquire)
    }
}

/// Marks that the machine starts for a request, until it is dropped.
struct Awakening(Arc<Live>);

impl Awakening {
    /// None while another starts it.
    fn begin(live: &Arc<Live>) -> Option<Self> {
        let going = live.published.waking.swap(true, Ordering::AcqRel);
        (!going).then(|| Self(live.clone()))
    }
}

impl Drop for Awakening {
    fn drop(&mut self) {
        self.0.published.waking.store(false, Ordering::Release);
    }
}

/// The lookup of the data path for each request.
#[derive(Default)]
pub(super) struct Lookup {
    sessions: RwLock<HashMap<PreviewHash, Arc<Live>>>,
    machines: RwLock<HashSet<SandboxId>>,
}

impl Lookup {
    /// A session has been opened or made.
    pub(super) fn add(&self, live: &Arc<Live>) {
        self.machines.write().extend(live.preview().machine);
        let hash = live.published.hash.clone();
        self.sessions.write().insert(hash, live.clone());
    }

    /// A session has been deleted.
    pub(super) fn remove(&self, live: &Live) {
        self.sessions.write().remove(&live.published.hash);
    }

    /// This sandbox is the machine of a session from now on.
    pub(super) fn machine_begins(&self, machine: SandboxId) {
        self.machines.write().insert(machine);
    }

    /// This sandbox has ended.
    pub(super) fn machine_ended(&self, machine: Option<&SandboxId>) {
        if let Some(machine) = machine {
            self.machines.write().remove(machine);
        }
    }
}

impl Service {
    /// Starts the machine of a session for a request to its preview, as far as the session allows that.
    fn wake(self: &Arc<Self>, live: &Arc<Live>) -> Waking {
        if !live.preview().wakes || live.is_deleting() {
            return Waking::Never;
        }
        let Some(awakening) = Awakening::begin(live) else {
            return Waking::Going;
        };
        // Read again: no other task counts a start now.
        let SessionRecord {
            id,
            mut wakes,
            life,
            ..
        } = live.record();
        if let Err(wait) = wakes.take(self.now(), life.idle()) {
            return Waking::NotFor(wait);
        }
        let (service, session) = (self.clone(), id.clone());
        tokio::spawn(async move {
            let live = &awakening.0;
            let counted = live.update(&*service.parts.store, |record| {
                record.wakes.paid = wakes.paid;
            });
            let woken = async {
                counted.await?;
                // As an attached terminal starts it: a login shell may start the server.
                let window = WindowName::default();
                service.window(live, &window).await
            };
            if let Err(error) = woken.await {
                tracing::warn!(%session, %error, "a request cannot start the machine of a session");
            }
        });
        Waking::Begun(id)
    }
}

impl Previews for SessionService {
    fn find(&self, hash: &PreviewHash) -> Option<Preview> {
        let sessions = self.0.previews.sessions.read();
        sessions.get(hash).map(|live| live.preview())
    }

    fn wake(&self, hash: &PreviewHash) -> Waking {
        let live = self.0.previews.sessions.read().get(hash).cloned();
        live.map_or(Waking::Never, |live| self.0.wake(&live))
    }

    fn is_machine(&self, sandbox: &SandboxId) -> bool {
        self.0.previews.machines.read().contains(sandbox)
    }
}
