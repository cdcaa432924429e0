//! Sandboxes in a map: only the port methods that the tests use.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::auth::{ApiKey, KeyRecord, Principal, SandboxPermit, Token, TokenSeed};
use shoal_core::id::{KeyId, SandboxId, TeamId};
use shoal_core::network::{Egress, InvalidRule};
use shoal_core::ports::Ports;
use shoal_core::ports::access::{KeyError, Keys, NewKey};
use shoal_core::ports::create::{CreateError, Created, Idempotency, SandboxRequest};
use shoal_core::ports::doctor::NoDoctor;
use shoal_core::ports::inside::{SandboxAccess, SandboxClient};
use shoal_core::ports::list::{ListFilter, Page};
use shoal_core::ports::sandboxes::{Connected, Resize, SandboxError, Sandboxes, TimeoutTooLong};
use shoal_core::ports::sessions::NoSessions;
use shoal_core::ports::sessions::preview::NoPreviews;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::Contents;
use shoal_core::store::StoreError;
use shoal_engine::{SystemClock, test_util};

use super::unused::Unused;

/// The keys of two teams.
pub(crate) const OWN_KEY: &str = "e2b_0101010101010101010101010101010101010101";
pub(crate) const OTHER_KEY: &str = "e2b_0202020202020202020202020202020202020202";

/// The longest life of a sandbox here.
const LIFE_MAX: Duration = Duration::from_secs(3600);

fn seed() -> TokenSeed {
    TokenSeed::new([7; 32])
}

/// The token of a sandbox's daemon.
pub(crate) fn envd_token(id: &str) -> String {
    let token = seed().envd_access_token(&id.parse().unwrap());
    token.reveal().to_owned()
}

/// A backend whose sandboxes are only records.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    sandboxes: Arc<Mutex<BTreeMap<SandboxId, Arc<SandboxRecord>>>>,
}

impl Memory {
    pub(crate) fn ports(&self) -> Ports {
        let (memory, unused) = (Arc::new(self.clone()), Arc::new(Unused::default()));
        Ports {
            sandboxes: memory.clone(),
            access: memory.clone(),
            keys: memory,
            snapshots: unused.clone(),
            templates: unused.clone(),
            builds: unused.clone(),
            uploads: unused.clone(),
            catalogue: unused.clone(),
            pools: unused.clone(),
            teams: unused.clone(),
            sessions: Arc::new(NoSessions),
            session_secrets: Arc::new(NoSessions),
            session_memories: Arc::new(NoSessions),
            session_files: Arc::new(NoSessions),
            previews: Arc::new(NoPreviews),
            doctor: Arc::new(NoDoctor),
            telemetry: unused.clone(),
            sandbox_events: unused.clone(),
            images: unused.clone(),
            installation: unused,
            clock: Arc::new(SystemClock),
        }
    }

    fn granted(
        &self,
        principal: &Principal,
        id: &SandboxId,
    ) -> Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError> {
        let record = self.sandboxes.lock().get(id).cloned();
        record
            .and_then(|record| Some((SandboxPermit::grant(principal, &record)?, record)))
            .ok_or_else(|| SandboxError::NotFound(id.clone()))
    }
}

/// The error of an operation that this backend does not support.
fn none<T: Send + 'static>(permit: &SandboxPermit) -> BoxFuture<'static, Result<T, SandboxError>> {
    Box::pin(ready(Err(SandboxError::Busy(permit.sandbox().clone()))))
}

impl Sandboxes for Memory {
    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: SandboxRequest,
        _: Option<Idempotency>,
    ) -> BoxFuture<'a, Result<Created, CreateError>> {
        if new.timeout > LIFE_MAX {
            let too_long = TimeoutTooLong { most: LIFE_MAX };
            return Box::pin(ready(Err(too_long.into())));
        }
        let mut sandboxes = self.sandboxes.lock();
        let mut record = test_util::record(&format!("i{}", sandboxes.len()));
        record.team = principal.team;
        record.spec.metadata = new.metadata;
        let record = Arc::new(record);
        sandboxes.insert(record.id.clone(), record.clone());
        Box::pin(ready(Ok(Created { record })))
    }

    fn authorize<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>> {
        Box::pin(ready(self.granted(principal, id)))
    }

    fn find<'a>(
        &'a self,
        principal: &'a Principal,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>> {
        let unknown = |_| SandboxError::NoSuchName(text.to_owned());
        let id = SandboxId::from_wire(text).map_err(unknown);
        Box::pin(ready(id.and_then(|id| self.granted(principal, &id))))
    }

    fn list<'a>(&'a self, principal: &'a Principal, filter: &'a ListFilter) -> BoxFuture<'a, Page> {
        let records = self.sandboxes.lock().values().cloned().collect();
        Box::pin(ready(filter.page(principal, records)))
    }

    fn kill<'a>(&'a self, permit: &'a SandboxPermit) -> BoxFuture<'a, Result<(), SandboxError>> {
        self.sandboxes.lock().remove(permit.sandbox());
        Box::pin(ready(Ok(())))
    }

    fn connect<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Duration,
        _: bool,
    ) -> BoxFuture<'a, Result<Connected, SandboxError>> {
        none(permit)
    }

    fn pause<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Option<Contents>,
        _: bool,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        none(permit)
    }

    fn resume<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Duration,
        _: bool,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        none(permit)
    }

    fn fork<'a>(
        &'a self,
        _: &'a Principal,
        permit: &'a SandboxPermit,
        _: usize,
        _: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<Created, CreateError>>, SandboxError>> {
        none(permit)
    }

    fn set_timeout<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        none(permit)
    }

    fn refresh<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        none(permit)
    }

    fn set_network<'a>(
        &'a self,
        _: &'a SandboxPermit,
        _: Egress,
    ) -> BoxFuture<'a, Result<Result<(), SandboxError>, InvalidRule>> {
        Box::pin(ready(Err(InvalidRule::TooMany(1))))
    }

    fn resize<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Resize,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        none(permit)
    }

    fn rotate_tokens<'a>(
        &'a self,
        permit: &'a SandboxPermit,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        none(permit)
    }
}

impl SandboxAccess for Memory {
    fn open<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Arc<dyn SandboxClient>, SandboxError>> {
        none(permit)
    }

    fn envd_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        Some(seed().envd_access_token(&record.id))
    }

    fn traffic_access_token(&self, _: &SandboxRecord) -> Option<Token> {
        None
    }
}

impl Keys for Memory {
    fn authenticate<'a>(
        &'a self,
        key: &'a ApiKey,
    ) -> BoxFuture<'a, Result<Option<Principal>, StoreError>> {
        let team = match key.reveal() {
            OWN_KEY => Some(1),
            OTHER_KEY => Some(2),
            _ => None,
        };
        let principal = team.map(|team| Principal {
            team: TeamId::from_entropy([team; 16]),
            slug: format!("team-{team}").parse().unwrap(),
            key: KeyId::from_entropy([team; 16]),
            admin: false,
        });
        Box::pin(ready(Ok(principal)))
    }

    fn deleted(&self, _: &Principal) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn create<'a>(
        &'a self,
        _: &'a Principal,
        _: NewKey,
    ) -> BoxFuture<'a, Result<(ApiKey, KeyRecord), KeyError>> {
        Box::pin(ready(Err(KeyError::Forbidden)))
    }

    fn list<'a>(&'a self, _: &'a Principal) -> BoxFuture<'a, Result<Vec<KeyRecord>, KeyError>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn rename<'a>(
        &'a self,
        _: &'a Principal,
        id: KeyId,
        _: &'a str,
    ) -> BoxFuture<'a, Result<KeyRecord, KeyError>> {
        Box::pin(ready(Err(KeyError::NotFound(id))))
    }

    fn delete<'a>(&'a self, _: &'a Principal, id: KeyId) -> BoxFuture<'a, Result<(), KeyError>> {
        Box::pin(ready(Err(KeyError::NotFound(id))))
    }
}
