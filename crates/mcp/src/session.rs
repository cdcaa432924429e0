//! One session: who opened it, its sandbox, and its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::SandboxId;
use shoal_core::ports::Ports;
use shoal_core::ports::create::{CreateError, Created, SandboxRequest};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::template::TemplateKey;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::error::ToolError;
use crate::inner::InnerServers;
use crate::sessions::Place;

/// The label of sandboxes that a session has made.
const LABEL: (&str, &str) = ("origin", "mcp");

/// How much longer than its session a sandbox lives at least. If the server crashes, the sandbox ends by its deadline.
const SPARE: Duration = Duration::from_secs(60);

/// A sandbox that the caller may use.
pub(crate) type Held = (SandboxPermit, Arc<SandboxRecord>);

/// How a session is used.
#[derive(Debug, Clone, Copy)]
struct Activity {
    calls: usize,
    last: Instant,
}

/// A session.
pub(crate) struct Session {
    opener: Principal,
    template: Option<TemplateKey>,
    idle: Duration,
    sandbox: Arc<Mutex<Option<SandboxId>>>,
    activity: watch::Sender<Activity>,
    ended: CancellationToken,
    servers: InnerServers,
    _place: Place,
}

/// A call under way: the session is not idle.
pub(crate) struct Busy(Arc<Session>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.activity.send_modify(|activity| {
            activity.calls -= 1;
            activity.last = Instant::now();
        });
    }
}

impl Session {
    pub(crate) fn new(
        opener: Principal,
        template: Option<TemplateKey>,
        idle: Duration,
        place: Place,
    ) -> Self {
        let activity = Activity {
            calls: 0,
            last: Instant::now(),
        };
        Self {
            opener,
            template,
            idle,
            sandbox: Arc::default(),
            activity: watch::Sender::new(activity),
            ended: CancellationToken::new(),
            servers: InnerServers::default(),
            _place: place,
        }
    }

    /// The caller that opened it.
    pub(crate) fn opener(&self) -> &Principal {
        &self.opener
    }

    /// Cancelled when it ends.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// The MCP servers in sandboxes whose tools it offers.
    pub(crate) fn servers(&self) -> &InnerServers {
        &self.servers
    }

    /// Notes a request.
    pub(crate) fn touch(&self) {
        self.activity
            .send_modify(|activity| activity.last = Instant::now());
    }

    /// Notes a call that is under way until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.activity.send_modify(|activity| activity.calls += 1);
        Busy(self.clone())
    }

    /// Resolves when it was not used for its idle time.
    pub(crate) async fn idle(&self) {
        let mut activity = self.activity.subscribe();
        loop {
            let now = *activity.borrow_and_update();
            // A time that cannot be represented is never.
            let end = now.last.checked_add(self.idle);
            let over = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over, if now.calls == 0 => return,
                // The sender lives as long as `self`.
                _ = activity.changed() => {}
            }
        }
    }

    /// The id of its sandbox, if it has one. Does not wait for one that is being created.
    pub(crate) fn has(&self) -> Option<SandboxId> {
        self.sandbox.try_lock().ok()?.clone()
    }

    /// Its sandbox, if it has one.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) async fn existing(&self, ports: &Ports) -> Result<Held, ToolError> {
        let mut held = self.sandbox.lock().await;
        match held.clone() {
            Some(id) => self.look(ports, &mut held, &id).await,
            None => Err(ToolError::refused(
                "no_sandbox",
                "this session has no sandbox yet: name one with `sandbox`, or run a command first",
            )),
        }
    }

    /// Its sandbox, created if it has none, with a deadline that is at least `needed` away.
    ///
    /// # Errors
    /// When it cannot be created, or has ended: the next call then creates another.
    pub(crate) async fn sandbox(
        self: &Arc<Self>,
        ports: &Ports,
        needed: Duration,
    ) -> Result<Held, ToolError> {
        let mut held = self.sandbox.clone().lock_owned().await;
        if let Some(id) = held.clone() {
            let (permit, record) = self.look(ports, &mut held, &id).await?;
            drop(held);
            self.prolong(ports, &permit, &record, needed).await?;
            return Ok((permit, record));
        }
        // In a task of its own: a sandbox whose call was cancelled must not be forgotten.
        let creating = self.clone().create(ports.clone(), held, needed);
        let created = tokio::spawn(creating.in_current_span()).await;
        created.unwrap_or_else(|error| {
            tracing::error!(%error, "the task that creates a session's sandbox failed");
            Err(ToolError::refused("server_error", "the server failed"))
        })
    }

    /// Forgets its sandbox, if it is this one: it was killed.
    pub(crate) async fn forget(&self, id: &SandboxId) {
        let mut held = self.sandbox.lock().await;
        if held.as_ref() == Some(id) {
            *held = None;
        }
    }

    async fn look(
        &self,
        ports: &Ports,
        held: &mut Option<SandboxId>,
        id: &SandboxId,
    ) -> Result<Held, ToolError> {
        let found = ports.sandboxes.authorize(&self.opener, id).await;
        if matches!(found, Err(SandboxError::NotFound(_))) {
            *held = None;
            return Err(ToolError::refused(
                "sandbox_ended",
                format_args!(
                    "the sandbox {id} of this session has ended, with its files and processes: the \
                     next call creates a new one"
                ),
            ));
        }
        Ok(found?)
    }

    async fn create(
        self: Arc<Self>,
        ports: Ports,
        mut held: OwnedMutexGuard<Option<SandboxId>>,
        needed: Duration,
    ) -> Result<Held, ToolError> {
        if self.ended.is_cancelled() {
            return Err(ToolError::refused("session_ended", "the session has ended"));
        }
        let request = SandboxRequest {
            template: self.template.clone(),
            timeout: self.idle.saturating_add(needed + SPARE),
            metadata: BTreeMap::from([(LABEL.0.to_owned(), LABEL.1.to_owned())]),
            ..SandboxRequest::unnamed()
        };
        let Created { record } = make(&ports, &self.opener, request).await?;
        *held = Some(record.id.clone());
        let (permit, record) = ports.sandboxes.authorize(&self.opener, &record.id).await?;
        Ok((permit, record))
    }

    async fn prolong(
        &self,
        ports: &Ports,
        permit: &SandboxPermit,
        record: &SandboxRecord,
        needed: Duration,
    ) -> Result<(), ToolError> {
        let needed = self.idle.saturating_add(needed);
        let now = ports.clock.now();
        let late = record.ends_at().is_some_and(|end| end < now + needed);
        if !late || !record.state.is_running() {
            return Ok(());
        }
        let refresh = |time| ports.sandboxes.refresh(permit, time);
        let prolonged = match refresh(needed.saturating_add(SPARE)).await {
            Err(SandboxError::TimeoutTooLong(limit)) => refresh(limit.most).await,
            other => other,
        };
        Ok(prolonged.map(|_| ())?)
    }

    /// Ends it, and its sandbox.
    pub(crate) async fn end(&self, ports: &Ports) {
        self.ended.cancel();
        // Waits for a sandbox that is being created.
        let Some(id) = self.sandbox.lock().await.take() else {
            return;
        };
        let killed = match ports.sandboxes.authorize(&self.opener, &id).await {
            Ok((permit, _)) => ports.sandboxes.kill(&permit).await,
            Err(error) => Err(error),
        };
        match killed {
            Ok(()) | Err(SandboxError::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(sandbox.id = %id, %error, "the sandbox of an MCP session ends by its deadline");
            }
        }
    }
}

/// Creates a sandbox, for as long as the operator allows if that is shorter.
pub(crate) async fn make(
    ports: &Ports,
    principal: &Principal,
    request: SandboxRequest,
) -> Result<Created, CreateError> {
    let create = |request| ports.sandboxes.create(principal, request, None);
    match create(request.clone()).await {
        Err(CreateError::TimeoutTooLong(limit)) => {
            create(SandboxRequest {
                timeout: limit.most,
                ..request
            })
            .await
        }
        other => other,
    }
}
