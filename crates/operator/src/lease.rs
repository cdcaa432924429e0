//! Leader election by a `Lease`, compatible with client-go's.
//!
//! A candidate never compares another machine's clock with its own: it takes the lease over when the
//! record has not changed for the lease's duration by its own monotonic clock. The published crates compare
//! wall clocks, so a clock that jumps makes two leaders.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::failure::is_conflict;

/// The lease of the reference controller: only one of both leads.
const NAME: &str = "a3317529.agent-sandbox.x-k8s.io";
/// How long a record holds after its last change.
const DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew for this long gives up, before another may take over.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// The interval of attempts.
const RETRY: Duration = Duration::from_secs(2);

/// One candidate.
pub(crate) struct Candidate {
    api: Api<Lease>,
    identity: String,
    /// The record as it was first seen, and when.
    seen: Option<(LeaseSpec, Instant)>,
}

/// The result of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// This candidate holds the lease, or may take it.
    Take,
    /// Another holds it.
    Wait,
}

impl Candidate {
    pub(crate) fn new(client: Client, namespace: &str, identity: String) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            identity,
            seen: None,
        }
    }

    /// Waits until this candidate leads.
    pub(crate) async fn acquire(&mut self) {
        let mut told = false;
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) if !told => {
                    told = true;
                    tracing::info!(lease = NAME, "another replica leads, waiting");
                }
                Ok(false) => {}
                // Another candidate was faster.
                Err(error) if is_conflict(&error) => {}
                Err(error) => tracing::warn!(lease = NAME, %error, "cannot take the lease"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Renews until `stop`, and releases the lease then.
    ///
    /// # Errors
    /// When the lease is lost.
    pub(crate) async fn hold(mut self, stop: CancellationToken) -> Result<(), LostLease> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    self.release().await;
                    return Ok(());
                }
                () = tokio::time::sleep(RETRY) => {}
            }
            // The record may be written as soon as the attempt begins.
            let begun = Instant::now();
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = begun,
                Ok(Ok(false)) => return Err(LostLease),
                Ok(Err(error)) => tracing::warn!(lease = NAME, %error, "cannot renew the lease"),
                Err(_) => tracing::warn!(lease = NAME, "renewing the lease takes too long"),
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return Err(LostLease);
            }
        }
    }

    /// Takes or renews the lease, if it may. A conflict is an error: the next attempt sees the other's lease.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let params = PostParams::default();
        let Some(mut lease) = self.api.get_opt(NAME).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(NAME.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(record(&self.identity, None)),
            };
            return self.api.create(&params, &lease).await.map(|_| true);
        };
        let current = lease.spec.take().unwrap_or_default();
        let verdict = judge(&current, &self.identity, &mut self.seen, Instant::now());
        if verdict == Verdict::Wait {
            return Ok(false);
        }
        lease.spec = Some(record(&self.identity, Some(current)));
        self.api.replace(NAME, &params, &lease).await.map(|_| true)
    }

    /// Lets another candidate take over at once.
    async fn release(self) {
        let Ok(Some(mut lease)) = self.api.get_opt(NAME).await else {
            return;
        };
        let Some(spec) = lease
            .spec
            .as_mut()
            .filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
        else {
            return;
        };
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        if let Err(error) = self.api.replace(NAME, &PostParams::default(), &lease).await {
            tracing::debug!(%error, "cannot release the lease: it will run out");
        }
    }
}

/// The lease belongs to another replica, or could not be renewed in time.
#[derive(Debug, thiserror::Error)]
#[error("the lease {NAME} is lost: another replica leads, or the API server cannot be reached")]
pub(crate) struct LostLease;

/// Whether the candidate may take the lease. `seen` keeps the record and when it last changed.
fn judge(
    current: &LeaseSpec,
    identity: &str,
    seen: &mut Option<(LeaseSpec, Instant)>,
    now: Instant,
) -> Verdict {
    let holder = current.holder_identity.as_deref().unwrap_or_default();
    if holder == identity || holder.is_empty() {
        return Verdict::Take;
    }
    match seen {
        Some((record, since)) if record == current => {
            let seconds = current
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok());
            let duration = seconds.map_or(DURATION, Duration::from_secs);
            if now.duration_since(*since) >= duration {
                Verdict::Take
            } else {
                Verdict::Wait
            }
        }
        _ => {
            *seen = Some((current.clone(), now));
            Verdict::Wait
        }
    }
}

/// The record of a new term, or of a renewed one.
fn record(identity: &str, before: Option<LeaseSpec>) -> LeaseSpec {
    let now = MicroTime(Timestamp::now());
    let before = before.unwrap_or_default();
    let renewed = before.holder_identity.as_deref() == Some(identity);
    let transitions = before.lease_transitions.unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: if renewed {
            before.acquire_time.clone()
        } else {
            Some(now.clone())
        },
        renew_time: Some(now),
        lease_transitions: Some(if renewed {
            transitions
        } else {
            transitions.saturating_add(1)
        }),
        ..before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_over_only_after_it_has_not_changed_for_its_duration() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut seen = None;
        let mut record = held_by("other");
        // The time in the record is long past, and does not count.
        assert_eq!(judge(&record, "own", &mut seen, start), Verdict::Wait);
        assert_eq!(judge(&record, "own", &mut seen, after(14)), Verdict::Wait);
        record.renew_time = Some(MicroTime(Timestamp::MAX));
        assert_eq!(
            judge(&record, "own", &mut seen, after(16)),
            Verdict::Wait,
            "it was renewed"
        );
        assert_eq!(judge(&record, "own", &mut seen, after(30)), Verdict::Wait);
        assert_eq!(judge(&record, "own", &mut seen, after(31)), Verdict::Take);
    }

    #[test]
    fn a_free_lease_and_an_own_one_are_taken_at_once() {
        for holder in ["", "own"] {
            assert_eq!(
                judge(&held_by(holder), "own", &mut None, Instant::now()),
                Verdict::Take
            );
        }
    }

    #[test]
    fn a_renewal_keeps_the_term() {
        let first = record("own", Some(held_by("other")));
        assert_eq!(first.lease_transitions, Some(1));
        let second = record("own", Some(first.clone()));
        assert_eq!(second.lease_transitions, Some(1));
        assert_eq!(second.acquire_time, first.acquire_time);
    }
}
