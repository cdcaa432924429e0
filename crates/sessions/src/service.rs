//! The sessions of an installation.

mod events;
mod external;
mod files;
mod live;
mod machine;
mod memories;
mod nesting;
mod ports;
mod preview;
mod reset;
mod secrets;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::RwLock;
use shoal_core::auth::Principal;
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::ports::NoEntropy;
use shoal_core::ports::builds::Builds;
use shoal_core::ports::external::ExternalMachines;
use shoal_core::ports::inside::SandboxAccess;
use shoal_core::ports::observe::SandboxEvents;
use shoal_core::ports::sandboxes::Sandboxes;
use shoal_core::ports::sessions::events::SessionFact;
use shoal_core::ports::sessions::{NewSession, SessionChange, SessionError, SessionView};
use shoal_core::session::life::Life;
use shoal_core::session::machine::MachineType;
use shoal_core::session::preview::{PreviewDomain, Wakes};
use shoal_core::session::{SessionId, SessionRecord};
use shoal_core::store::{SessionFileStore, SessionMemoryStore, SessionSecretStore, SessionStore};
use tokio::sync::Notify;

use self::live::Live;
use self::machine::Keep;
pub use self::nesting::MachineSupport;
use self::preview::{Lookup, Published};
pub use self::template::SessionTemplates;
use crate::events::Events;
use crate::files::{Contents, FileParts, Files};
use crate::seal::SealingKey;

/// The most sessions of a team.
const SESSIONS_MAX: usize = 10_000;

/// The most bytes of a session's labels together.
const METADATA_MAX: usize = 16 << 10;

/// How often the machines of sessions in use get more time.
const RENEWAL: Duration = Duration::from_secs(600);

/// When a machine that could not be ended is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// The dependencies of sessions.
#[derive(Clone)]
pub struct SessionParts {
    /// The sandboxes that are their machines.
    pub sandboxes: Arc<dyn Sandboxes>,
    /// Their events.
    pub events: Arc<dyn SandboxEvents>,
    /// The way into them.
    pub access: Arc<dyn SandboxAccess>,
    /// The external machines of those that have no sandbox.
    pub external: Arc<dyn ExternalMachines>,
    /// The builds of their templates.
    pub builds: Arc<dyn Builds>,
    /// The templates of their machines.
    pub templates: SessionTemplates,
    /// Their records.
    pub store: Arc<dyn SessionStore>,
    /// Their secrets, sealed.
    pub secrets: Arc<dyn SessionSecretStore>,
    /// The key that seals their secrets.
    pub sealing_key: SealingKey,
    /// Their memories.
    pub memories: Arc<dyn SessionMemoryStore>,
    /// Their files.
    pub rows: Arc<dyn SessionFileStore>,
    /// The contents of their files.
    pub contents: Contents,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The features of their machines here.
    pub support: MachineSupport,
    /// The domain of their previews.
    pub previews: PreviewDomain,
}

/// The sessions of an installation. Cheap to clone.
#[derive(Clone)]
pub struct SessionService(Arc<Service>);

struct Service {
    parts: SessionParts,
    sessions: RwLock<BTreeMap<SessionId, Arc<Live>>>,
    previews: Lookup,
    /// A deadline may have moved.
    moved: Notify,
}

impl SessionService {
    /// Opens the stored sessions. Their machines are looked for when they are used, or end.
    ///
    /// # Errors
    /// When the store cannot be read, or a session of a former version gets no preview.
    pub async fn open(parts: SessionParts) -> Result<Self, SessionError> {
        let service = Service {
            sessions: RwLock::default(),
            previews: Lookup::default(),
            moved: Notify::new(),
            parts,
        };
        for mut record in service.parts.store.sessions().await? {
            let (published, is_new) = Published::of(&mut record, &service.parts.previews)?;
            if is_new {
                service.parts.store.put_session(&record).await?;
            }
            service.add(service.parts.live(record, published));
        }
        Ok(Self(Arc::new(service)))
    }

    /// Ends the machines of unused sessions at their deadlines. Never returns.
    pub async fn end_unused(self) {
        let service = &self.0;
        // Not awaited: a machine that does not answer must not keep others from ending.
        tokio::spawn(service.clone().reconnect());
        let mut renewal = service.now() + RENEWAL;
        let mut earliest = service.now();
        loop {
            // Registered before the deadlines are read, so that a change in between is not missed.
            let moved = service.moved.notified();
            let deadlines = service.all().into_iter().filter_map(|live| live.deadline());
            let next = deadlines.min().map_or(renewal, |next| next.min(renewal));
            let next = next.max(earliest);
            tokio::select! {
                () = moved => continue,
                () = service.parts.clock.sleep_until(next) => {}
            }
            let now = service.now();
            let all = service.all();
            let over: Vec<_> = all.iter().filter(|live| live.is_over(now)).collect();
            let ended = join_all(over.into_iter().map(|live| service.end_if_over(live))).await;
            if ended.contains(&false) {
                earliest = now + AGAIN;
            }
            if now >= renewal {
                let used: Vec<_> = all.iter().filter(|live| live.running() > 0).collect();
                join_all(used.into_iter().map(|live| service.renew(live))).await;
                renewal = now + RENEWAL;
            }
        }
    }
}

impl SessionParts {
    /// A session in memory.
    fn live(&self, record: SessionRecord, published: Published) -> Live {
        let parts = FileParts {
            rows: self.rows.clone(),
            contents: self.contents.clone(),
            clock: self.clock.clone(),
        };
        let events = Events::new(self.clock.clone());
        let files = Files::new(record.id.clone(), parts, events.clone());
        Live::new(record, Arc::new(files), published, events)
    }
}

impl Service {
    fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    fn all(&self) -> Vec<Arc<Live>> {
        self.sessions.read().values().cloned().collect()
    }

    fn add(&self, live: Live) -> Arc<Live> {
        let live = Arc::new(live);
        self.previews.add(&live);
        self.sessions.write().insert(live.record().id, live.clone());
        live
    }

    /// The session with this id, if it is of the caller's team.
    fn find(&self, principal: &Principal, id: &str) -> Result<Arc<Live>, SessionError> {
        let parsed = id.parse::<SessionId>().ok();
        let found = parsed.and_then(|id| self.sessions.read().get(&id).cloned());
        found
            .filter(|live| live.record().team == principal.team)
            .ok_or_else(|| SessionError::NotFound(id.chars().take(64).collect()))
    }

    async fn create(
        &self,
        principal: &Principal,
        new: NewSession,
    ) -> Result<SessionView, SessionError> {
        let machine = MachineType::try_from(new.machine.clone())?;
        nesting::check(&machine, &self.parts.support)?;
        check_labels(&new.metadata)?;
        let id = SessionId::from_entropy(random()?);
        let external = self.external_record(&id, &machine, &new)?;
        let of_team = |live: &&Arc<Live>| live.record().team == principal.team;
        if self.sessions.read().values().filter(of_team).count() >= SESSIONS_MAX {
            return Err(SessionError::TooMany(SESSIONS_MAX));
        }
        let now = self.now();
        let mut record = SessionRecord {
            id,
            team: principal.team,
            slug: principal.slug.clone(),
            key: principal.key,
            metadata: new.metadata,
            machine,
            life: Life {
                persist: new.persist,
                last_execution: now,
            },
            sandbox: None,
            filled: None,
            system: None,
            isolation: None,
            created_at: now,
            preview: None,
            wakes: Wakes {
                allowed: new.wake_on_request,
                ..Wakes::default()
            },
            external,
        };
        let (published, _) = Published::of(&mut record, &self.parts.previews)?;
        self.parts.store.put_session(&record).await?;
        Ok(self.add(self.parts.live(record, published)).view())
    }

    fn list(&self, principal: &Principal) -> Vec<SessionView> {
        let all = self.all().into_iter();
        let of_team = all.filter(|live| live.record().team == principal.team);
        let mut views: Vec<_> = of_team.map(|live| live.view()).collect();
        views.sort_by_key(|view| {
            std::cmp::Reverse((view.record.created_at, view.record.id.clone()))
        });
        views
    }

    async fn change(
        &self,
        live: &Live,
        change: SessionChange,
    ) -> Result<SessionView, SessionError> {
        if let Some(metadata) = &change.metadata {
            check_labels(metadata)?;
        }
        self.check_wakes(live, &change)?;
        let changed = |record: &mut SessionRecord| {
            if let Some(metadata) = change.metadata {
                record.metadata = metadata;
            }
            if let Some(persist) = change.persist {
                record.life.persist = persist;
            }
            if let Some(allowed) = change.wake_on_request {
                record.wakes.allowed = allowed;
            }
        };
        live.update(&*self.parts.store, changed).await?;
        // Its machine may get more time now. One that has just ended needs none.
        self.renew(live).await;
        self.moved.notify_waiters();
        live.events.tell(SessionFact::Changed);
        Ok(live.view())
    }

    async fn delete(&self, live: &Live) -> Result<(), SessionError> {
        live.delete_begins();
        self.end(live, Keep::Nothing).await?;
        let id = live.record().id;
        live.files.forget().await?;
        self.parts.store.delete_session(&id).await?;
        self.sessions.write().remove(&id);
        self.previews.remove(live);
        live.events.over();
        Ok(())
    }
}

fn check_labels(metadata: &BTreeMap<String, String>) -> Result<(), SessionError> {
    let bytes = metadata.iter().map(|(key, value)| key.len() + value.len());
    if bytes.sum::<usize>() > METADATA_MAX {
        return Err(SessionError::Metadata(METADATA_MAX));
    }
    Ok(())
}

/// Random bytes.
fn random<const N: usize>() -> Result<[u8; N], NoEntropy> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| NoEntropy(e.to_string()))?;
    Ok(bytes)
}
