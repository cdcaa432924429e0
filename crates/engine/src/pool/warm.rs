//! A member is made: started, warmed up, seen to answer.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::catalogue::{Entry, EntryResources, Pool};
use shoal_core::detail::Chain;
use shoal_core::driver::DriverError;
use shoal_core::id::SandboxId;
use shoal_core::pool::{Membership, Stage};
use shoal_core::resources::AskedResources;
use shoal_core::sandbox::{Purpose, SandboxRecord};
use shoal_core::state::KillReason;
use shoal_core::template::TemplateKey;

use crate::access::{INSTALLATION, owner_of_members};
use crate::create::{CreateError, NewSandbox};
use crate::engine::{Engine, SandboxError};
use crate::guest::{GuestDoor, GuestError};
use crate::sandboxes::{HandOutError, Order, command, ended, within};
use crate::templates::TemplateError;

/// How long a member may take from its start until it is ready.
const WARM_UP: Duration = Duration::from_secs(120);

/// How often its port is tried.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Why a member could not be made, or handed out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemberError {
    /// It could not be started.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// It ended, or a command or the daemon inside it failed.
    #[error(transparent)]
    HandOut(#[from] HandOutError),
    /// Nothing listens.
    #[error("nothing answers on port {port} (`probePort`) within {} s", .within.as_secs())]
    Closed { port: u16, within: Duration },
    /// It has what no request for the entry can be given.
    #[error(
        "with `pool.resources` as they are no member could be handed out: they are more than its \
         template can be raised to"
    )]
    Misfit,
    /// Nobody wants it any more: the catalogue has changed.
    #[error("it is not wanted any more")]
    Unwanted,
}

impl MemberError {
    /// Whether it may be the fault of what the member began with, and not of a machine that is full for
    /// a moment.
    fn is_origins(&self) -> bool {
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

impl From<GuestError> for MemberError {
    fn from(error: GuestError) -> Self {
        Self::HandOut(error.into())
    }
}

/// The purpose of a member that starts.
fn of_pool(entry: &Entry, digest: &str) -> Purpose {
    Purpose::Pool(Membership {
        entry: entry.name.clone(),
        digest: digest.to_owned(),
        stage: Stage::Starting,
    })
}

impl Engine {
    /// Makes a member that its pool knows already, and lets it be handed out. What fails is noted in
    /// the pool, and nothing is left of the sandbox.
    pub(super) async fn make_member(&self, entry: &Arc<Entry>, id: SandboxId) {
        let (shared, name) = (&self.shared, &entry.name);
        let Err(error) = self.try_member(entry, &id).await else {
            return;
        };
        let end = |reply| Order::Kill(KillReason::Failed, reply);
        if let Err(error) = shared.sandboxes.order(&id, end).await
            && !matches!(error, SandboxError::NotFound(_))
        {
            tracing::error!(sandbox.id = %id, error = %Chain(&error), "a member of a pool is not ended yet");
        }
        let now = shared.clock.now();
        if matches!(error, MemberError::Unwanted) {
            shared.pools.give_up(name, &id);
        } else if shared
            .pools
            .failed(name, &id, Chain(&error).to_string(), now)
        {
            tracing::warn!(template = %name, sandbox.id = %id, error = %Chain(&error), "a member of a pool cannot be made");
        }
    }

    async fn try_member(&self, entry: &Arc<Entry>, id: &SandboxId) -> Result<(), MemberError> {
        let shared = &self.shared;
        let Some(pool) = &entry.pool else {
            return Err(MemberError::Unwanted);
        };
        let specified = self
            .specified_with_builtin(&INSTALLATION, member_of(entry, pool)?)
            .await?;
        let Some(wanted) = specified.wanted else {
            return Err(self.why_none(entry));
        };
        // The catalogue may be another one since.
        if !wanted.entry.makes_what(entry)
            || !shared.pools.made_from(&entry.name, id, &wanted.digest)
        {
            return Err(MemberError::Unwanted);
        }
        let mut spec = specified.spec;
        // Members are nobody's: no caller has to know the token of their daemon.
        spec.secure = false;
        let seed = self.plant(entry, &wanted.digest, &mut spec);
        spec.purpose = of_pool(entry, &wanted.digest);
        let room = shared
            .sandboxes
            .room_for_member()
            .map_err(CreateError::from)?;
        let made = async {
            let launch = (room, None);
            let launch =
                shared
                    .sandboxes
                    .launch_as(id.clone(), owner_of_members(), spec, None, launch);
            let record = launch.await?;
            tokio::select! {
                warm = self.warm_up(entry, pool, &record, seed.is_some()) => warm?,
                () = shared.sandboxes.ended(id) => {
                    return Err(SandboxError::NotFound(id.clone()).into());
                }
            }
            Ok::<_, MemberError>(record)
        }
        .await;
        if let (Err(error), Some(seed)) = (&made, seed)
            && error.is_origins()
        {
            self.spoil(&entry.name, id, seed);
        }
        let record = made?;
        if seed.is_none() {
            self.save_seed(entry, &wanted.digest, &record).await?;
        }
        let ready = shared.clock.now();
        shared
            .sandboxes
            .order(id, |reply| Order::JoinPool(ready, reply))
            .await?;
        if shared.pools.join(&entry.name, id, ready) {
            Ok(())
        } else {
            Err(MemberError::Unwanted)
        }
    }

    /// Why a sandbox of the entry, as its pool makes them, would do for nobody.
    fn why_none(&self, entry: &Arc<Entry>) -> MemberError {
        let in_force = self.shared.catalogues.current();
        match in_force.catalogue.entry(entry.name.as_str()) {
            Some(now) if now.makes_what(entry) => MemberError::Misfit,
            _ => MemberError::Unwanted,
        }
    }

    /// Runs `warmupCmd`, and waits for `probePort`. With a port the command may go on: it is what
    /// listens. Without one, it is what makes the member ready, and has to end.
    async fn warm_up(
        &self,
        entry: &Entry,
        pool: &Pool,
        record: &SandboxRecord,
        planted: bool,
    ) -> Result<(), MemberError> {
        const WHAT: &str = "warmupCmd";
        let shared = &self.shared;
        let gone = || SandboxError::NotFound(record.id.clone());
        let report = record.report.as_ref().ok_or_else(gone)?;
        let door = GuestDoor {
            address: report.address,
            token: Some(shared.access.guest_token(record)),
            user: None,
        };
        // What was begun with another member's memory goes on there.
        let argv = entry.warmup_argv().filter(|_| !planted);
        let command = argv.as_deref().and_then(command);
        let end = shared.clock.now() + WARM_UP;
        let warm = async {
            let Some(command) = command else {
                return Ok(());
            };
            let process = shared.guest.run(door, command).await?;
            Ok(ended(WHAT, process).await?)
        };
        let Some(port) = pool.probe_port else {
            let outcome = within(&*shared.clock, end, warm).await;
            return outcome.unwrap_or(Err(HandOutError::Endless {
                what: WHAT,
                within: WARM_UP,
                hint: ": say `probePort` if it is to go on",
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
            while shared
                .guest
                .probe(report.address, port.get())
                .await
                .is_err()
            {
                let next = shared.clock.now() + PROBE_EVERY;
                shared.clock.sleep_until(next).await;
            }
            Ok(())
        };
        let either = async {
            tokio::select! {
                failed = watched => failed,
                opened = opened => opened,
            }
        };
        let outcome = within(&*shared.clock, end, either).await;
        outcome.unwrap_or(Err(MemberError::Closed {
            port: port.get(),
            within: WARM_UP,
        }))
    }
}

/// Asks for what a member is: the entry, with what its pool gives it of the machine.
fn member_of(entry: &Entry, pool: &Pool) -> Result<NewSandbox, MemberError> {
    let key: Result<TemplateKey, _> = entry.name.as_str().parse();
    let key = key.map_err(|error| CreateError::from(TemplateError::from(error)))?;
    let limits = pool.resources.as_ref();
    Ok(NewSandbox {
        resources: AskedResources {
            cpu: limits.and_then(EntryResources::most_cpu),
            memory: limits.and_then(EntryResources::most_memory),
            ..AskedResources::default()
        },
        ..NewSandbox::of(key)
    })
}
