//! Making a member: start its sandbox, warm it up, wait until it answers.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::catalogue::{Entry, EntryResources, Pool};
use shoal_core::detail::Chain;
use shoal_core::driver::DriverError;
use shoal_core::id::SandboxId;
use shoal_core::pool::{PoolMember, PoolPhase};
use shoal_core::ports::create::{CreateError, SandboxRequest};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::templates::TemplateError;
use shoal_core::resources::RequestedResources;
use shoal_core::sandbox::{Purpose, SandboxRecord, SandboxSpec};
use shoal_core::state::KillReason;
use shoal_core::template::TemplateKey;

use super::Pools;
use crate::access::{INSTALLATION, owner_of_members};
use crate::sandboxes::{Command, HandOutError, command, ended, within};
use shoal_core::ports::inside::InsideError;
use shoal_protocol::client::SandboxTarget;

/// How long a member may take from its start until it is ready.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(120);

/// How often `probePort` is tried.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Why a member could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemberError {
    /// Its sandbox could not be started.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Its sandbox ended, or a command or the daemon inside failed.
    #[error(transparent)]
    HandOut(#[from] HandOutError),
    /// No program listens on the port.
    #[error("nothing answers on port {port} (`probePort`) within {} s", .within.as_secs())]
    Closed { port: u16, within: Duration },
    /// No request for the entry could claim it.
    #[error(
        "with `pool.resources` as they are no member could be handed out: they are more than its \
         template can be raised to"
    )]
    Misfit,
    /// The pool no longer wants it: the catalogue has changed.
    #[error("it is not wanted any more")]
    Unwanted,
}

impl MemberError {
    /// Whether the snapshot that the member started from may be the cause, rather than a machine without
    /// free resources.
    fn blames_snapshot(&self) -> bool {
        match self {
            Self::Create(CreateError::Driver(error)) => matches!(
                error,
                DriverError::Unusable(_)
                    | DriverError::SnapshotNotFound(_)
                    | DriverError::Step { .. }
                    | DriverError::TooSlow { .. }
            ),
            Self::Create(_) | Self::Misfit | Self::Unwanted => false,
            Self::HandOut(_) | Self::Closed { .. } => true,
        }
    }
}

impl From<SandboxError> for MemberError {
    fn from(error: SandboxError) -> Self {
        Self::HandOut(error.into())
    }
}

impl From<InsideError> for MemberError {
    fn from(error: InsideError) -> Self {
        Self::HandOut(error.into())
    }
}

impl Pools {
    /// Makes a member that was added as starting. A failure is recorded in the pool, and the sandbox is
    /// ended.
    pub(super) async fn make_member(self: &Arc<Self>, entry: &Arc<Entry>, id: SandboxId) {
        let name = &entry.name;
        let Err(error) = self.try_member(entry, &id).await else {
            return;
        };
        let end = |reply| Command::Kill(KillReason::Failed, reply);
        if let Err(error) = self.parts.sandboxes.call(&id, end).await
            && !matches!(error, SandboxError::NotFound(_))
        {
            tracing::error!(sandbox.id = %id, error = %Chain(&error), "a member of a pool is not ended yet");
        }
        let now = self.parts.clock.now();
        let message = Chain(&error).to_string();
        if matches!(error, MemberError::Unwanted) {
            self.parts.members.remove_unwanted(name, &id);
        } else if self.parts.members.start_failed(name, &id, message, now) {
            tracing::warn!(template = %name, sandbox.id = %id, error = %Chain(&error), "a member of a pool cannot be made");
        }
    }

    async fn try_member(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        id: &SandboxId,
    ) -> Result<(), MemberError> {
        let Some(pool) = &entry.pool else {
            return Err(MemberError::Unwanted);
        };
        let new = member_of(entry, pool)?;
        let resolved = self
            .parts
            .resolver
            .resolve_request(&INSTALLATION, &new)
            .await?;
        let (mut spec, key) = self.parts.planner.plan(&INSTALLATION, &resolved, &new)?;
        let Some(key) = key else {
            return Err(self.why_unclaimable(entry));
        };
        // The catalogue may have changed since.
        if !key.entry.makes_what(entry)
            || !self.parts.members.set_digest(&entry.name, id, &key.digest)
        {
            return Err(MemberError::Unwanted);
        }
        // A member has no client that would know the token of its daemon.
        spec.secure = false;
        let origin = self.parts.members.warm_snapshot(&entry.name, &key.digest);
        let warm = origin.as_ref().map(|origin| origin.id);
        if origin.is_some() {
            spec.snapshot = origin;
        }
        spec.purpose = Purpose::Pool(PoolMember {
            entry: entry.name.clone(),
            digest: key.digest.clone(),
            phase: PoolPhase::Starting,
        });
        let made = self
            .start_member(entry, pool, id, spec, warm.is_some())
            .await;
        if let (Err(error), Some(warm)) = (&made, warm)
            && error.blames_snapshot()
        {
            self.invalidate(&entry.name, id, warm);
        }
        let record = made?;
        if warm.is_none() {
            self.save_warm_snapshot(entry, &key.digest, &record).await?;
        }
        let ready = self.parts.clock.now();
        let join = |reply| Command::JoinPool(ready, reply);
        self.parts.sandboxes.call(id, join).await?;
        if self.parts.members.set_ready(&entry.name, id, ready) {
            Ok(())
        } else {
            Err(MemberError::Unwanted)
        }
    }

    /// Starts the sandbox of a member, and warms it up unless it started from a `warm` snapshot.
    async fn start_member(
        &self,
        entry: &Entry,
        pool: &Pool,
        id: &SandboxId,
        spec: SandboxSpec,
        warm: bool,
    ) -> Result<Arc<SandboxRecord>, MemberError> {
        let sandboxes = &self.parts.sandboxes;
        let quota = sandboxes.reserve_member().map_err(CreateError::from)?;
        // Members are not worth the memory of sandboxes in use.
        let _admission = sandboxes.admit_start().await.map_err(CreateError::from)?;
        let owner = owner_of_members();
        let record = sandboxes
            .launch_as(id.clone(), owner, spec, None, (quota, None))
            .await?;
        tokio::select! {
            warm = self.warm_up(entry, pool, &record, warm) => warm?,
            () = sandboxes.ended(id) => {
                return Err(SandboxError::NotFound(id.clone()).into());
            }
        }
        Ok(record)
    }

    /// Why no request could claim a member of this entry.
    fn why_unclaimable(&self, entry: &Arc<Entry>) -> MemberError {
        let in_force = self.parts.catalogues.current();
        match in_force.catalogue.entry(entry.name.as_str()) {
            Some(now) if now.makes_what(entry) => MemberError::Misfit,
            _ => MemberError::Unwanted,
        }
    }

    /// Runs `warmupCmd`, and waits for `probePort`. With a port, the command may keep running as the
    /// server that listens. Without one, its end makes the member ready.
    async fn warm_up(
        &self,
        entry: &Entry,
        pool: &Pool,
        record: &SandboxRecord,
        warm: bool,
    ) -> Result<(), MemberError> {
        const WHAT: &str = "warmupCmd";
        let gone = || SandboxError::NotFound(record.id.clone());
        let report = record.report.as_ref().ok_or_else(gone)?;
        let target = SandboxTarget {
            address: report.address,
            token: Some(self.parts.access.guest_token(record)),
            user: None,
        };
        // A warm snapshot contains the running command.
        let argv = entry.warmup_argv().filter(|_| !warm);
        let command = argv.as_deref().and_then(command);
        let end = self.parts.clock.now() + WARM_UP_TIMEOUT;
        let warm = async {
            let Some(command) = command else {
                return Ok(());
            };
            let process = self.parts.guest.open(target, None).run(command).await?;
            Ok(ended(WHAT, process).await?)
        };
        let Some(port) = pool.probe_port else {
            let outcome = within(&*self.parts.clock, end, warm).await;
            return outcome.unwrap_or(Err(HandOutError::Endless {
                what: WHAT,
                within: WARM_UP_TIMEOUT,
                hint: ": set `probePort` if it keeps running",
            }
            .into()));
        };
        let watched = async {
            match warm.await {
                Ok(()) => std::future::pending().await,
                Err(error) => Err(error),
            }
        };
        let opened = async {
            while self
                .parts
                .guest
                .probe(report.address, port.get())
                .await
                .is_err()
            {
                let next = self.parts.clock.now() + PROBE_EVERY;
                self.parts.clock.sleep_until(next).await;
            }
            Ok(())
        };
        let either = async {
            tokio::select! {
                failed = watched => failed,
                opened = opened => opened,
            }
        };
        let outcome = within(&*self.parts.clock, end, either).await;
        outcome.unwrap_or(Err(MemberError::Closed {
            port: port.get(),
            within: WARM_UP_TIMEOUT,
        }))
    }
}

/// The request for a member: the entry, with the resources of its pool.
fn member_of(entry: &Entry, pool: &Pool) -> Result<SandboxRequest, MemberError> {
    let key: Result<TemplateKey, _> = entry.name.as_str().parse();
    let key = key.map_err(|error| CreateError::from(TemplateError::from(error)))?;
    let limits = pool.resources.as_ref();
    Ok(SandboxRequest {
        resources: RequestedResources {
            cpu: limits.and_then(EntryResources::most_cpu),
            memory: limits.and_then(EntryResources::most_memory),
            ..RequestedResources::default()
        },
        ..SandboxRequest::of(key)
    })
}
