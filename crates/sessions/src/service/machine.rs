//! The machine of a session: a sandbox that starts with the first command, and ends when nobody uses it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use shoal_core::auth::SandboxPermit;
use shoal_core::ports::NotServed;
use shoal_core::ports::create::{CreateError, SandboxRequest};
use shoal_core::ports::inside::SandboxClient;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::sessions::{ExecEvent, ExecStream, SessionError};
use shoal_core::resources::{Mib, MilliCpu};
use shoal_core::sandbox::OnTimeout;
use shoal_core::session::machine::{MachineType, Nesting};
use shoal_core::session::{SessionRecord, WindowName};
use tokio::sync::mpsc;

use super::Service;
use super::live::Live;
use super::preview::PUBLIC_HOSTNAME;
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

/// How often a window or a machine that ends at this moment is replaced.
const ATTEMPTS: usize = 3;

/// Refuses a machine that no backend makes, before anything is started.
pub(super) fn check_served(machine: &MachineType) -> Result<(), NotServed> {
    let MachineType::Sandbox { gpus, nesting, .. } = machine else {
        return Err(NotServed {
            what: "`ssh_connection`",
            instead: "use a sandbox: leave `ssh_connection` and `ssh_private_key` out",
        });
    };
    if gpus.is_some() {
        return Err(NotServed {
            what: "`gpu_type`",
            instead: "leave it out: the sandbox has processors alone",
        });
    }
    match nesting {
        Nesting::None => Ok(()),
        Nesting::Privileged => Err(NotServed {
            what: "`privileged`",
            instead: "leave it out: containers do not run in a sandbox",
        }),
        Nesting::Container(_) => Err(NotServed {
            what: "`docker_image`",
            instead: "make a template of the image, and name that",
        }),
    }
}

/// The sandbox to make for a session.
fn request(record: &SessionRecord) -> SandboxRequest {
    let mut request = SandboxRequest::unnamed();
    if let MachineType::Sandbox {
        cpu_count,
        memory_gb,
        ..
    } = &record.machine
    {
        request.resources.cpu = cpu_count.map(|count| MilliCpu(count * 1000));
        request.resources.memory = memory_gb.map(|size| Mib(size * 1024));
    }
    request.timeout = record.life.idle() + SLACK;
    request.on_timeout = OnTimeout::Kill;
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
            tokio::spawn(async move {
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
        let place = Place {
            client,
            clock: self.parts.clock.clone(),
            env: BTreeMap::from([(PUBLIC_HOSTNAME.to_owned(), live.published.hostname.clone())]),
        };
        let window = Window::open(name.clone(), place).await?;
        live.opened(name.clone(), window.clone());
        Ok(window)
    }

    /// A client of the machine, which starts when there is none.
    async fn client(&self, live: &Live) -> Result<Arc<dyn SandboxClient>, SessionError> {
        if let Some(permit) = self.permit(live).await? {
            match self.parts.access.open(&permit, None).await {
                Err(SandboxError::NotFound(_)) => {}
                Err(SandboxError::Paused(_)) => {
                    live.close_windows();
                    let time = live.record().life.idle() + SLACK;
                    self.parts.sandboxes.connect(&permit, time, true).await?;
                    return Ok(self.parts.access.open(&permit, None).await?);
                }
                opened => return Ok(opened?),
            }
        }
        live.close_windows();
        let permit = self.start(live).await?;
        Ok(self.parts.access.open(&permit, None).await?)
    }

    /// The right to the machine; none when there is none any more.
    async fn permit(&self, live: &Live) -> Result<Option<SandboxPermit>, SessionError> {
        let record = live.record();
        let Some(sandbox) = &record.sandbox else {
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
        let wanted = request(&record);
        let sandboxes = &self.parts.sandboxes;
        let created = match sandboxes.create(&principal, wanted.clone(), None).await {
            // No sandbox may live as long as the session would keep it.
            Err(CreateError::TimeoutTooLong(limit)) => {
                let timeout = limit.most;
                let wanted = SandboxRequest { timeout, ..wanted };
                sandboxes.create(&principal, wanted, None).await?
            }
            created => created?,
        };
        let id = created.record.id.clone();
        self.previews.machine_begins(id.clone());
        let now = self.now();
        let started = |record: &mut SessionRecord| {
            record.sandbox = Some(id.clone());
            record.life.last_execution = now;
        };
        live.update(&*self.parts.store, started).await?;
        self.previews.machine_ended(record.sandbox.as_ref());
        self.moved.notify_waiters();
        let (permit, _) = sandboxes.authorize(&principal, &id).await?;
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
    pub(super) async fn end(&self, live: &Live) -> Result<bool, SessionError> {
        let _alone = live.machine.lock().await;
        self.end_locked(live).await
    }

    /// Ends the machine when its time is over; whether that succeeded. An error is logged.
    pub(super) async fn end_if_over(&self, live: &Live) -> bool {
        let _alone = live.machine.lock().await;
        // A command may have begun.
        if live.is_over(self.now())
            && let Err(error) = self.end_locked(live).await
        {
            let session = live.record().id;
            tracing::error!(%session, %error, "cannot end the machine of a session");
            return false;
        }
        true
    }

    async fn end_locked(&self, live: &Live) -> Result<bool, SessionError> {
        live.close_windows();
        let ended = match self.permit(live).await? {
            Some(permit) => match self.parts.sandboxes.kill(&permit).await {
                Err(SandboxError::NotFound(_)) => false,
                killed => killed.map(|()| true)?,
            },
            None => false,
        };
        let former = live.record().sandbox;
        live.update(&*self.parts.store, |record| record.sandbox = None)
            .await?;
        self.previews.machine_ended(former.as_ref());
        Ok(ended)
    }
}
