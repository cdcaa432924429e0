//! The machine of a session: a sandbox that starts with the first command, and ends when it is unused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use shoal_core::auth::SandboxPermit;
use shoal_core::detail::Chain;
use shoal_core::ports::create::SandboxRequest;
use shoal_core::ports::inside::{InsideError, SandboxClient};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::sessions::events::SessionFact;
use shoal_core::ports::sessions::{ExecEvent, ExecStream, SessionError};
use shoal_core::resources::{Mib, MilliCpu};
use shoal_core::sandbox::OnTimeout;
use shoal_core::session::machine::{MachineType, Nesting};
use shoal_core::session::{SessionRecord, WindowName};
use shoal_core::template::TemplateKey;
use tokio::sync::mpsc;

use super::live::Live;
use super::preview::PUBLIC_HOSTNAME;
use super::template::notice;
use super::{Service, external, nesting};
use crate::events::WindowEvents;
use crate::window::{Place, Window};

/// The label of a session's machine: the id of the session.
const LABEL: &str = "shoal.session";

/// How much longer than its session says a machine may live. The service ends it in time; this is for a server that is away.
const SLACK: Duration = Duration::from_secs(1200);

/// The most windows of a session.
const WINDOWS_MAX: usize = 32;

/// The longest command line, in bytes.
const COMMAND_MAX: usize = 1 << 20;

/// How many pieces of output wait for a slow reader.
const PIECES: usize = 16;

/// How long a machine is kept whose files cannot be read.
pub(super) const GIVEN_UP: Duration = Duration::from_secs(900);

/// The part of an ending machine that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// All of its files; otherwise it does not end.
    All,
    /// Its files, if the machine reports them soon.
    IfPossible,
    /// Nothing.
    Nothing,
}

/// How often a window or a machine that ends at this moment is replaced.
const ATTEMPTS: usize = 3;

/// For how long a machine that does not answer is taken for one that has just ended, as after a reboot inside.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How often it is looked for meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Whether a machine may have ended from inside, which its backend does not know yet.
fn may_be_ending(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::Inside(InsideError::Unreachable(_))
            | SessionError::Sandbox(
                SandboxError::Busy(_) | SandboxError::Guest(InsideError::Unreachable(_))
            )
    )
}

/// The sandbox to make for a session.
pub(super) fn request(record: &SessionRecord, template: &TemplateKey) -> SandboxRequest {
    let mut request = SandboxRequest::of(template.clone());
    if let MachineType::Sandbox {
        cpu_count,
        memory_gb,
        ..
    } = &record.machine
    {
        request.resources.cpu = cpu_count.map(|count| MilliCpu(count * 1000));
        request.resources.memory = memory_gb.map(|size| Mib(size * 1024));
    }
    request.privileged = *record.machine.nesting() != Nesting::None;
    request.timeout = record.life.idle() + SLACK;
    // Its files may not be on this side yet, if the server was away.
    request.on_timeout = OnTimeout::Pause;
    request.keep_memory = false;
    request.metadata = BTreeMap::from([(LABEL.to_owned(), record.id.to_string())]);
    // Only the preview leads to a port.
    request.network.allow_public_traffic = Some(false);
    request
}

impl Service {
    /// Runs a command in a window.
    pub(super) async fn exec(
        self: &Arc<Self>,
        live: &Arc<Live>,
        name: &WindowName,
        command: &str,
    ) -> Result<ExecStream, SessionError> {
        let is_blank = command.trim().is_empty();
        if is_blank || command.contains('\0') || command.len() > COMMAND_MAX {
            return Err(SessionError::InvalidCommand);
        }
        let guard = live.command_begins();
        for _ in 0..ATTEMPTS {
            let window = self.window(live, name).await?;
            let Some(mut events) = window.exec(command).await else {
                // It is closing.
                live.forget(name, &window);
                continue;
            };
            let (sender, receiver) = mpsc::channel(PIECES);
            let (service, live) = (self.clone(), live.clone());
            // The command continues when its reader goes, and the machine lives until it ends.
            let notice = live.notice.lock().take().map(ExecEvent::Notice);
            tokio::spawn(async move {
                if let Some(notice) = notice {
                    // The reader may have gone.
                    let _ = sender.send(notice).await;
                }
                while let Some(event) = events.next().await {
                    let ended = matches!(event, ExecEvent::Ended(_));
                    if ended {
                        service.executed(&live).await;
                    }
                    // The reader may have gone.
                    let _ = sender.send(event).await;
                    if ended {
                        break;
                    }
                }
                drop(guard);
                service.moved.notify_waiters();
            });
            let next =
                async |mut receiver: mpsc::Receiver<_>| Some((receiver.recv().await?, receiver));
            return Ok(stream::unfold(receiver, next).boxed());
        }
        Err(SessionError::NoWindow(name.clone()))
    }

    /// A command has ended: the time of the machine begins anew.
    async fn executed(&self, live: &Live) {
        let now = self.now();
        let store = &*self.parts.store;
        if let Err(error) = live
            .update(store, |record| record.life.last_execution = now)
            .await
        {
            let session = live.record().id;
            tracing::error!(%session, %error, "cannot store when a command ended");
        }
        self.renew(live).await;
    }

    /// The window with this name, which opens when it is not; with the machine, which starts when there is none.
    pub(super) async fn window(
        &self,
        live: &Live,
        name: &WindowName,
    ) -> Result<Window, SessionError> {
        let _alone = live.machine.lock().await;
        let clock = &self.parts.clock;
        let until = clock.now() + ENDS_WITHIN;
        loop {
            match self.window_of_machine(live, name).await {
                Err(error) if may_be_ending(&error) && clock.now() < until => {
                    clock.sleep_until(clock.now() + LOOK_AGAIN).await;
                }
                window => return window,
            }
        }
    }

    async fn window_of_machine(
        &self,
        live: &Live,
        name: &WindowName,
    ) -> Result<Window, SessionError> {
        if live.is_deleting() {
            return Err(SessionError::Ending(live.record().id));
        }
        let client = self.client(live).await?;
        if let Some(window) = live.window(name) {
            return Ok(window);
        }
        if live.windows().len() >= WINDOWS_MAX {
            return Err(SessionError::TooManyWindows(WINDOWS_MAX));
        }
        self.start_docker(live).await?;
        self.give_secrets(live).await?;
        let place = Place {
            in_container: nesting::user(&live.record().machine).is_some(),
            client,
            clock: self.parts.clock.clone(),
            env: BTreeMap::from([(PUBLIC_HOSTNAME.to_owned(), live.published.hostname.clone())]),
            secrets: live.secrets.subscribe(),
            events: WindowEvents {
                events: live.events.clone(),
                window: name.clone(),
            },
        };
        let window = Window::open(name.clone(), place).await?;
        live.opened(name.clone(), window.clone());
        Ok(window)
    }

    /// A client of the machine, which starts when there is none.
    async fn client(&self, live: &Live) -> Result<Arc<dyn SandboxClient>, SessionError> {
        if let Some(client) = self.present(live).await? {
            return Ok(client);
        }
        live.close_windows();
        live.disconnect().await;
        if external::address(&live.record()).is_some() {
            return self.external(live).await;
        }
        let permit = self.start(live).await?;
        let user = nesting::user(&live.record().machine);
        let client = self.parts.access.open(&permit, user).await?;
        self.connect(live, &client).await?;
        Ok(client)
    }

    /// A client of the machine, if there is one; with its files. One that sleeps is woken.
    pub(super) async fn present(
        &self,
        live: &Live,
    ) -> Result<Option<Arc<dyn SandboxClient>>, SessionError> {
        let record = live.record();
        if external::address(&record).is_some() && record.sandbox.is_some() {
            return self.external(live).await.map(Some);
        }
        let Some(permit) = self.permit(live).await? else {
            return Ok(None);
        };
        let user = nesting::user(&live.record().machine);
        let client = match self.parts.access.open(&permit, user).await {
            Ok(client) => client,
            Err(SandboxError::NotFound(_)) => return Ok(None),
            Err(SandboxError::Paused(_)) => {
                live.close_windows();
                let time = live.record().life.idle() + SLACK;
                self.parts.sandboxes.connect(&permit, time, true).await?;
                self.parts.access.open(&permit, user).await?
            }
            Err(error) => return Err(error.into()),
        };
        self.connect(live, &client).await?;
        Ok(Some(client))
    }

    /// The right to the machine; none when there is none any more, and for an external machine.
    pub(super) async fn permit(&self, live: &Live) -> Result<Option<SandboxPermit>, SessionError> {
        let record = live.record();
        let Some(sandbox) = record
            .sandbox
            .as_ref()
            .filter(|_| record.external.is_none())
        else {
            return Ok(None);
        };
        let sandboxes = &self.parts.sandboxes;
        match sandboxes.authorize(&record.principal(), sandbox).await {
            Ok((permit, _)) => Ok(Some(permit)),
            Err(SandboxError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a machine.
    async fn start(&self, live: &Live) -> Result<SandboxPermit, SessionError> {
        let record = live.record();
        let principal = record.principal();
        let made = self.make(&principal, &record).await?;
        let id = made.sandbox;
        // Before it has a command: no secret is active in a machine that it was not activated for.
        let (session, secrets) = (&record.id, &self.parts.secrets);
        secrets.bind_session_secrets(session, &id).await?;
        self.previews.machine_begins(id.clone());
        let now = self.now();
        let started = |record: &mut SessionRecord| {
            record.sandbox = Some(id.clone());
            record.life.last_execution = now;
        };
        live.update(&*self.parts.store, started).await?;
        self.previews.machine_ended(record.sandbox.as_ref());
        live.events.machine_ended(record.sandbox.as_ref());
        live.events.tell(SessionFact::MachineStarted(id.clone()));
        self.moved.notify_waiters();
        let (permit, _) = self.parts.sandboxes.authorize(&principal, &id).await?;
        let system = self.system(&permit, made.note.as_deref()).await;
        let isolation = made.isolation;
        let known = |record: &mut SessionRecord| {
            (record.system, record.isolation) = (system, isolation);
        };
        live.update(&*self.parts.store, known).await?;
        *live.notice.lock() = made.note.map(|note| notice(&note));
        Ok(permit)
    }

    /// Gives the machine the time that its session keeps it. Failing shortens its life and loses nothing.
    pub(super) async fn renew(&self, live: &Live) {
        let time = live.record().life.idle() + SLACK;
        let renewed = async {
            let Some(permit) = self.permit(live).await? else {
                return Ok(());
            };
            match self.parts.sandboxes.refresh(&permit, time).await {
                Err(SandboxError::TimeoutTooLong(limit)) => {
                    self.parts.sandboxes.refresh(&permit, limit.most).await?;
                    Ok(())
                }
                Err(SandboxError::NotFound(_)) => Ok(()),
                renewed => renewed.map(drop).map_err(SessionError::from),
            }
        };
        if let Err(error) = renewed.await {
            let session = live.record().id;
            tracing::warn!(%session, %error, "cannot give the machine more time");
        }
    }

    /// Ends the machine; whether there was one.
    pub(super) async fn end(&self, live: &Live, keep: Keep) -> Result<bool, SessionError> {
        let _alone = live.machine.lock().await;
        self.end_locked(live, keep).await
    }

    /// Ends the machine if its deadline has passed; whether that succeeded. An error is logged.
    pub(super) async fn end_if_over(&self, live: &Live) -> bool {
        let _alone = live.machine.lock().await;
        // A command may have started.
        let now = self.now();
        let keep = if live.is_over_since(now, GIVEN_UP) {
            Keep::IfPossible
        } else {
            Keep::All
        };
        if live.is_over(now)
            && let Err(error) = self.end_locked(live, keep).await
        {
            let session = live.record().id;
            tracing::error!(%session, error = %Chain(&error), "cannot end the machine of a session");
            return false;
        }
        true
    }

    async fn end_locked(&self, live: &Live, keep: Keep) -> Result<bool, SessionError> {
        self.keep_files(live, keep).await?;
        live.close_windows();
        live.disconnect().await;
        let ended = match self.permit(live).await? {
            Some(permit) => match self.parts.sandboxes.kill(&permit).await {
                Err(SandboxError::NotFound(_)) => false,
                killed => killed.map(|()| true)?,
            },
            None => external::address(&live.record()).is_some() && live.record().sandbox.is_some(),
        };
        let former = live.record().sandbox;
        let without = |record: &mut SessionRecord| {
            (record.sandbox, record.system, record.isolation) = (None, None, None);
        };
        live.update(&*self.parts.store, without).await?;
        self.previews.machine_ended(former.as_ref());
        live.events.machine_ended(former.as_ref());
        Ok(ended)
    }
}
