//! Quotas of API keys, exact over replicas.
//!
//! The use of a key is its sandboxes: those with its label. A replica that is about to create or enlarge
//! one reserves that first, as an entry of a ConfigMap. It writes the entry only if the ConfigMap has not
//! changed since it looked: at the reservations first, then at the sandboxes. A reservation is removed
//! after its sandbox was written, so the two looks miss nothing.
//!
//! A replica that dies leaves its reservations. The others remove those that they have seen for
//! [`ABANDONED`], by their own clocks. A replica writes no sandbox for a reservation older than [`FRESH`],
//! and the API server ends requests after a minute: no sandbox comes after its reservation has gone.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp as Time;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_core::id::KeyId;
use shoal_core::ports::NoEntropy;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::sandboxes::{QuotaExceeded, SandboxError};
use shoal_core::quota::{Amount, OverQuota, Quota, Scope, Used};
use shoal_core::store::StoreError;
use shoal_crds::kruise::names::{annotation, label};
use shoal_crds::kruise::{Sandbox, SandboxPhase, SandboxState};
use tokio::time::Instant;

use crate::config_map::SharedConfigMap;
use crate::{failure, pod, random};

/// The ConfigMap with the reservations.
pub(crate) const STORE: &str = "e2b-quotas";

/// How long a reservation allows writes.
const FRESH: Duration = Duration::from_secs(30);

/// When it is renewed while a create waits.
const AGED: Duration = Duration::from_secs(15);

/// When the other replicas remove it. More than [`FRESH`] and the API server's limit for a request.
const ABANDONED: Duration = Duration::from_secs(120);

/// How often a replica looks for abandoned reservations.
const SWEEP: Duration = Duration::from_secs(15);

/// How long a request tries to reserve while others do.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest pause between two tries, in milliseconds.
const PAUSE: u64 = 40;

/// Why nothing was reserved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReserved {
    #[error(transparent)]
    Over(#[from] OverQuota),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl From<NotReserved> for SandboxError {
    fn from(error: NotReserved) -> Self {
        match error {
            NotReserved::Over(over) => QuotaExceeded::Key(over).into(),
            NotReserved::Store(store) => store.into(),
            NotReserved::Entropy(entropy) => entropy.into(),
        }
    }
}

impl From<NotReserved> for CreateError {
    fn from(error: NotReserved) -> Self {
        SandboxError::from(error).into()
    }
}

/// The request for a reservation.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// The key.
    pub(crate) key: KeyId,
    /// Its quota.
    pub(crate) quota: Quota,
    /// The namespace of its sandboxes.
    pub(crate) namespace: String,
    /// The text of the claim that holds the sandbox, or will hold it.
    pub(crate) sandbox: String,
    /// All that the sandbox will use.
    pub(crate) amount: Amount,
}

/// An entry of the ConfigMap.
#[derive(Serialize, Deserialize)]
struct Reservation {
    sandbox: String,
    amount: Amount,
}

/// The reservations of all replicas.
pub(crate) struct Quotas {
    client: Client,
    map: SharedConfigMap,
    /// One attempt of this replica at a time: two would only make conflicts.
    gate: tokio::sync::Mutex<()>,
    /// When this replica first saw each reservation.
    seen: Mutex<HashMap<String, Instant>>,
}

/// A reservation of this replica. One that is dropped without a release is removed as an abandoned one.
pub(crate) struct Hold<'a> {
    quotas: &'a Quotas,
    ask: Ask,
    entry: String,
    since: Instant,
}

impl Quotas {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            map: SharedConfigMap::new(client.clone(), namespace, STORE),
            client,
            gate: tokio::sync::Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// Reserves the resources of a sandbox.
    ///
    /// # Errors
    /// When they exceed the quota, or the API server refuses.
    pub(crate) async fn reserve(&self, ask: Ask) -> Result<Hold<'_>, NotReserved> {
        let end = Instant::now() + PATIENCE;
        let _one = self.gate.lock().await;
        loop {
            let since = Instant::now();
            let entry = format!("{}.{:016x}", ask.key, number()?);
            match self.try_reserve(&ask, &entry).await? {
                Ok(()) => {
                    return Ok(Hold {
                        quotas: self,
                        ask,
                        entry,
                        since,
                    });
                }
                Err(error) if failure::is_conflict(&error) && Instant::now() < end => {
                    let pause = Duration::from_millis(number()? % PAUSE);
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(failure::store(&error).into()),
            }
        }
    }

    /// One attempt, with the API server's answer to the write.
    async fn try_reserve(&self, ask: &Ask, entry: &str) -> Result<kube::Result<()>, NotReserved> {
        let state = self.map.read().await;
        let state = state.map_err(|error| failure::store(&error))?;
        let sandboxes = self.sandboxes_of(ask).await;
        let sandboxes = sandboxes.map_err(|error| failure::store(&error))?;
        let reserved = reservations(&state, ask.key);
        let more = more(ask, &sandboxes, &reserved);
        let used = Used::count(
            sandboxes
                .iter()
                .map(|(name, amount, scope)| (name.as_str(), *amount, *scope)),
            reserved
                .iter()
                .map(|one| (one.sandbox.as_str(), one.amount)),
        );
        ask.quota.admits(&used, more)?;
        let reservation = Reservation {
            sandbox: ask.sandbox.clone(),
            amount: ask.amount,
        };
        let text = serde_json::to_string(&reservation).map_err(StoreError::failed)?;
        Ok(self.map.write_over(&state, entry, text).await.map(drop))
    }

    /// The sandboxes of a key, as the API server has them: a watch may be behind.
    async fn sandboxes_of(&self, ask: &Ask) -> kube::Result<Vec<(String, Amount, Scope)>> {
        let api: Api<Sandbox> = Api::namespaced(self.client.clone(), &ask.namespace);
        let labelled = ListParams::default().labels(&format!("{}={}", label::QUOTA_KEY, ask.key));
        let now = Time::now();
        let listed = api.list(&labelled).await?;
        let using = listed.items.iter().filter(|sandbox| uses(sandbox, now));
        let using = using.map(|sandbox| (name_of(sandbox), amount_of(sandbox), scope_of(sandbox)));
        Ok(using.collect())
    }

    /// Removes reservations that replicas have left, forever.
    pub(crate) async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.sweep_once().await {
                tracing::warn!(%error, "cannot look for abandoned reservations of quotas");
            }
        }
    }

    async fn sweep_once(&self) -> kube::Result<()> {
        let state = self.map.read().await?;
        let abandoned = abandoned(&mut self.seen.lock(), &state, Instant::now());
        if abandoned.is_empty() {
            return Ok(());
        }
        tracing::info!(count = abandoned.len(), "removes abandoned reservations");
        self.map.remove(&abandoned).await
    }
}

impl Hold<'_> {
    /// Whether a write may still follow.
    pub(crate) fn is_fresh(&self) -> bool {
        self.since.elapsed() < FRESH
    }

    /// Whether the sandbox uses no more than was reserved.
    pub(crate) fn covers(&self, sandbox: &Sandbox) -> bool {
        amount_of(sandbox).is_within(self.ask.amount)
    }

    /// Reserves the same again, if some time has gone.
    pub(crate) async fn renew(&mut self) -> Result<(), NotReserved> {
        if self.since.elapsed() < AGED {
            return Ok(());
        }
        let renewed = self.quotas.reserve(self.ask.clone()).await?;
        std::mem::replace(self, renewed).release().await;
        Ok(())
    }

    /// Ends the reservation: its sandbox is written, or will not be.
    pub(crate) async fn release(self) {
        let removed = self.quotas.map.remove(std::slice::from_ref(&self.entry));
        if let Err(error) = removed.await {
            tracing::warn!(%error, "a reservation of a quota stays until it is abandoned");
        }
    }
}

/// The reservations of a key.
fn reservations(state: &ConfigMap, key: KeyId) -> Vec<Reservation> {
    let prefix = format!("{key}.");
    let entries = state.data.iter().flatten();
    let own = entries.filter(|(name, _)| name.starts_with(&prefix));
    own.filter_map(|(name, text)| match serde_json::from_str(text) {
        Ok(reservation) => Some(reservation),
        Err(error) => {
            tracing::warn!(name, %error, "cannot read a reservation of a quota");
            None
        }
    })
    .collect()
}

/// The part of the sandbox's need that is not counted yet.
fn more(ask: &Ask, sandboxes: &[(String, Amount, Scope)], reserved: &[Reservation]) -> Amount {
    let sandboxes = sandboxes.iter().map(|(name, amount, _)| (name, *amount));
    let reserved = reserved.iter().map(|one| (&one.sandbox, one.amount));
    let counted = sandboxes.chain(reserved);
    let counted = counted.filter(|(name, _)| **name == ask.sandbox);
    let counted = counted.fold(Amount::default(), |most, (_, amount)| most.max(amount));
    ask.amount.beyond(counted)
}

/// The reservations that this replica has seen for too long. Notes new ones, and forgets those that have gone.
fn abandoned(seen: &mut HashMap<String, Instant>, state: &ConfigMap, now: Instant) -> Vec<String> {
    let data = state.data.as_ref();
    seen.retain(|entry, _| data.is_some_and(|data| data.contains_key(entry)));
    let entries = data.into_iter().flat_map(|data| data.keys());
    let old = entries.filter(|entry| {
        let since = *seen.entry((*entry).clone()).or_insert(now);
        now.duration_since(since) >= ABANDONED
    });
    old.cloned().collect()
}

/// The usage of a sandbox.
pub(crate) fn amount_of(sandbox: &Sandbox) -> Amount {
    pod::amount(sandbox.spec.template.as_ref())
}

/// The name of a sandbox among reservations: the text of its claim.
pub(crate) fn name_of(sandbox: &Sandbox) -> String {
    let lock = sandbox.annotation(annotation::LOCK);
    let uid = sandbox.metadata.uid.as_deref();
    lock.or(uid).unwrap_or_default().to_owned()
}

fn scope_of(sandbox: &Sandbox) -> Scope {
    if sandbox.spec.paused {
        Scope::All
    } else {
        Scope::Running
    }
}

/// Whether a sandbox counts. One whose pod is only not ready does: it may be again.
fn uses(sandbox: &Sandbox, now: Time) -> bool {
    let phase = sandbox.status.as_ref().and_then(|status| status.phase);
    let (state, reason) = SandboxState::of(sandbox, now);
    state != SandboxState::Dead
        || (phase == Some(SandboxPhase::Running)
            && !matches!(reason, "ResourceDeleted" | "ShutdownTimeReached"))
}

fn number() -> Result<u64, NoEntropy> {
    Ok(u64::from_ne_bytes(random::bytes()?))
}

#[cfg(test)]
mod tests;
