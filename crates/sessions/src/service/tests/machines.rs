//! Sandboxes that are only records, whose commands run on this machine.

use futures_util::StreamExt;
use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::auth::{SandboxPermit, Token};
use shoal_core::driver::{Isolation, Phases, StartKind, StartReport};
use shoal_core::id::{ExecutionId, SandboxId, TemplateId};
use shoal_core::network::{Egress, InvalidRule, NetworkPolicy, RequestedNetwork};
use shoal_core::ports::create::{CreateError, Created, Idempotency, SandboxRequest};
use shoal_core::ports::inside::{InsideError, SandboxClient};
use shoal_core::ports::list::{ListFilter, Page};
use shoal_core::ports::observe::{
    EventKind, SandboxEvent, Scope, Seen, SeenStream, SubscribeError,
};
use shoal_core::ports::sandboxes::{Connected, Resize, SandboxError, TimeoutTooLong};
use shoal_core::resources::{MilliCpu, Resources};
use shoal_core::sandbox::{Lifecycle, Purpose, SandboxRecord, SandboxSpec, TokenSalts};
use shoal_core::snapshot::Contents;
use shoal_core::state::State;
use shoal_core::store::StoreError;

use tokio::sync::mpsc;

use super::parts::Parts;
use super::*;
use crate::local::Local;

/// The longest life of a sandbox. A session with `persist` asks for more.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3600);

#[derive(Default)]
pub(super) struct Machines {
    sandboxes: Mutex<BTreeMap<SandboxId, Arc<SandboxRecord>>>,
    sessions: Mutex<BTreeMap<SessionId, SessionRecord>>,
    made: Mutex<u8>,
    refusals: Mutex<usize>,
    /// The store of sessions beside their records.
    pub(super) parts: Arc<Parts>,
    pub(super) local: Local,
    /// How often a silent machine was asked; none while machines answer.
    silent: Mutex<Option<usize>>,
    /// The results of the next creates.
    missing: Mutex<Vec<CreateError>>,
    /// The listeners to the ends of sandboxes.
    listeners: Mutex<Vec<mpsc::UnboundedSender<Seen>>>,
    /// The sandboxes that were asked for.
    wanted: Mutex<Vec<SandboxRequest>>,
}

impl Machines {
    pub(super) fn alive(&self) -> Vec<SandboxId> {
        self.sandboxes.lock().keys().cloned().collect()
    }

    /// Whether the ports of each are public.
    pub(super) fn public(&self) -> Vec<bool> {
        let sandboxes = self.sandboxes.lock();
        let networks = sandboxes.values().map(|record| &record.spec.network);
        networks
            .map(|network| network.allow_public_traffic)
            .collect()
    }

    pub(super) fn made(&self) -> u8 {
        *self.made.lock()
    }

    /// Ends all sandboxes without an event.
    pub(super) fn lose_all(&self) {
        self.sandboxes.lock().clear();
    }

    /// Ends all sandboxes, with an event for each.
    pub(super) fn end_all(&self) {
        let ended = std::mem::take(&mut *self.sandboxes.lock());
        ended.values().for_each(|record| self.tell_end(record));
    }

    fn tell_end(&self, record: &SandboxRecord) {
        let event = SandboxEvent {
            kind: EventKind::Killed,
            at: Timestamp::from_unix_millis(0),
            sandbox: record.id.clone(),
            execution: record.execution,
            team: record.team,
            template: record.spec.template.clone(),
            detail: BTreeMap::new(),
        };
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.send(Seen::Event(event.clone())).is_ok());
    }

    /// The next ends of a sandbox fail.
    pub(super) fn refuse_to_end(&self, count: usize) {
        *self.refusals.lock() = count;
    }

    pub(super) fn refusals(&self) -> usize {
        *self.refusals.lock()
    }

    /// Lets machines stop answering, for an unknown reason.
    pub(super) fn fall_silent(&self) {
        *self.silent.lock() = Some(0);
    }

    /// How often a silent machine was asked.
    pub(super) fn asked_in_vain(&self) -> usize {
        self.silent.lock().unwrap_or_default()
    }

    /// It is known that all machines have ended.
    pub(super) fn have_ended(&self) {
        self.sandboxes.lock().clear();
        *self.silent.lock() = None;
    }

    /// The next creates fail, the last of these first.
    pub(super) fn refuse_to_begin(&self, errors: Vec<CreateError>) {
        *self.missing.lock() = errors;
    }

    /// The latest request for a create.
    pub(super) fn wanted(&self) -> SandboxRequest {
        self.wanted.lock().last().unwrap().clone()
    }

    fn found(&self, id: &SandboxId) -> Result<Arc<SandboxRecord>, SandboxError> {
        let found = self.sandboxes.lock().get(id).cloned();
        found.ok_or_else(|| SandboxError::NotFound(id.clone()))
    }

    fn timed(&self, id: &SandboxId, time: Duration) -> Result<Arc<SandboxRecord>, SandboxError> {
        if time > LIFE_MAX {
            return Err(TimeoutTooLong { most: LIFE_MAX }.into());
        }
        self.found(id)
    }
}

fn report() -> StartReport {
    StartReport {
        runtime: "runsc".parse().unwrap(),
        isolation: Isolation::UserspaceKernel,
        origin: StartKind::Cold,
        phases: Phases::default(),
        address: [10, 0, 0, 1].into(),
        envd_version: String::new(),
        keeps_connections: false,
    }
}

fn record(principal: &Principal, request: &SandboxRequest, number: u8) -> SandboxRecord {
    SandboxRecord {
        id: SandboxId::from_entropy([number; 16]),
        team: principal.team,
        execution: ExecutionId::from_entropy([number; 16]),
        spec: SandboxSpec {
            template: TemplateId::from_entropy([3; 16]),
            template_name: None,
            template_key: None,
            image: "test/image:1".parse().unwrap(),
            runtime: None,
            runtime_from_operator: false,
            resources: Resources::default(),
            user: "user".to_owned(),
            workdir: None,
            env: BTreeMap::new(),
            metadata: request.metadata.clone(),
            lifecycle: Lifecycle {
                timeout: request.timeout,
                on_timeout: request.on_timeout,
                auto_resume: false,
                keep_memory: true,
                endless: false,
            },
            network: NetworkPolicy {
                allow_public_traffic: request.network.allow_public_traffic.unwrap_or(true),
                ..NetworkPolicy::default()
            },
            template_network: RequestedNetwork::default(),
            secure: true,
            persistent: Contents::Memory,
            cpu_ceiling: MilliCpu(8000),
            snapshot: None,
            start: None,
            start_env: BTreeMap::new(),
            purpose: Purpose::Use,
            port: None,
            privileged: request.privileged,
        },
        state: State::Running,
        created_at: Timestamp::from_unix_millis(0),
        started_at: Timestamp::from_unix_millis(0),
        deadline: Timestamp::from_unix_seconds(300),
        since: Timestamp::from_unix_millis(0),
        report: Some(report()),
        resizing: false,
        tokens: TokenSalts::default(),
        aim: None,
        idempotency: None,
    }
}

impl SandboxEvents for Machines {
    fn subscribe(&self, _: &Principal, _: Scope) -> Result<SeenStream, SubscribeError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.listeners.lock().push(sender);
        let next = async |mut receiver: mpsc::UnboundedReceiver<_>| {
            Some((receiver.recv().await?, receiver))
        };
        Ok(futures_util::stream::unfold(receiver, next).boxed())
    }
}

impl Sandboxes for Machines {
    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: SandboxRequest,
        _: Option<Idempotency>,
    ) -> BoxFuture<'a, Result<Created, CreateError>> {
        Box::pin(async move {
            if new.timeout > LIFE_MAX {
                return Err(TimeoutTooLong { most: LIFE_MAX }.into());
            }
            self.wanted.lock().push(new.clone());
            if let Some(missing) = self.missing.lock().pop() {
                return Err(missing);
            }
            *self.made.lock() += 1;
            let record = Arc::new(record(principal, &new, self.made()));
            self.sandboxes
                .lock()
                .insert(record.id.clone(), record.clone());
            Ok(Created { record })
        })
    }

    fn authorize<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>> {
        Box::pin(async move {
            let record = self.found(id)?;
            let permit = SandboxPermit::grant(principal, &record);
            Ok((
                permit.ok_or_else(|| SandboxError::NotFound(id.clone()))?,
                record,
            ))
        })
    }

    fn kill<'a>(&'a self, permit: &'a SandboxPermit) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(async move {
            {
                let mut refusals = self.refusals.lock();
                if *refusals > 0 {
                    *refusals -= 1;
                    return Err(SandboxError::Busy(permit.sandbox().clone()));
                }
            }
            let record = self.found(permit.sandbox())?;
            self.sandboxes.lock().remove(permit.sandbox());
            self.tell_end(&record);
            Ok(())
        })
    }

    fn refresh<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        duration: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(async move { self.timed(permit.sandbox(), duration) })
    }

    fn find<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>> {
        unreachable!("a session knows the id of its machine")
    }

    fn list<'a>(&'a self, _: &'a Principal, _: &'a ListFilter) -> BoxFuture<'a, Page> {
        unreachable!("a session knows its machine")
    }

    fn connect<'a>(
        &'a self,
        _: &'a SandboxPermit,
        _: Duration,
        _: bool,
    ) -> BoxFuture<'a, Result<Connected, SandboxError>> {
        unreachable!("no machine is paused")
    }

    fn pause<'a>(
        &'a self,
        _: &'a SandboxPermit,
        _: Option<Contents>,
        _: bool,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        unreachable!("no machine is paused")
    }

    fn resume<'a>(
        &'a self,
        _: &'a SandboxPermit,
        _: Duration,
        _: bool,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        unreachable!("no machine is paused")
    }

    fn fork<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a SandboxPermit,
        _: usize,
        _: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<Created, CreateError>>, SandboxError>> {
        unreachable!("no machine is copied")
    }

    fn set_timeout<'a>(
        &'a self,
        _: &'a SandboxPermit,
        _: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        unreachable!("the life of a machine is never shortened")
    }

    fn set_network<'a>(
        &'a self,
        _: &'a SandboxPermit,
        _: Egress,
    ) -> BoxFuture<'a, Result<Result<(), SandboxError>, InvalidRule>> {
        unreachable!("no session has network rules")
    }

    fn resize<'a>(
        &'a self,
        _: &'a SandboxPermit,
        _: Resize,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        unreachable!("no machine is resized")
    }

    fn rotate_tokens<'a>(
        &'a self,
        _: &'a SandboxPermit,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        unreachable!("no session has tokens")
    }
}

impl SandboxAccess for Machines {
    fn open<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Arc<dyn SandboxClient>, SandboxError>> {
        Box::pin(async move {
            self.found(permit.sandbox())?;
            if let Some(count) = &mut *self.silent.lock() {
                *count += 1;
                return Err(SandboxError::Guest(InsideError::Unreachable(
                    "silent".to_owned(),
                )));
            }
            Ok(Arc::new(self.local.clone()) as Arc<dyn SandboxClient>)
        })
    }

    fn envd_access_token(&self, _: &SandboxRecord) -> Option<Token> {
        None
    }

    fn traffic_access_token(&self, _: &SandboxRecord) -> Option<Token> {
        None
    }
}

impl SessionStore for Machines {
    fn sessions(&self) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        Box::pin(async { Ok(self.sessions.lock().values().cloned().collect()) })
    }

    fn put_session(&self, session: &SessionRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        let session = session.clone();
        Box::pin(async move {
            self.sessions.lock().insert(session.id.clone(), session);
            Ok(())
        })
    }

    fn delete_session(&self, id: &SessionId) -> BoxFuture<'_, Result<(), StoreError>> {
        let id = id.clone();
        Box::pin(async move {
            self.sessions.lock().remove(&id);
            self.parts.delete(&id);
            Ok(())
        })
    }
}
