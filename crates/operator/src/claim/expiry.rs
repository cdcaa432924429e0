//! When a claim ends.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use shoal_crds::parts::ClaimLifecycle;

use crate::conditions;

/// The earlier of the shutdown time and the end of the time to live, which begins when the sandbox has
/// finished.
pub(super) fn at(lifecycle: Option<&ClaimLifecycle>, known: &[Condition]) -> Option<Timestamp> {
    let lifecycle = lifecycle?;
    let shutdown = lifecycle.shutdown_time.as_ref().map(|time| time.0);
    let finished = conditions::find(known, "Finished").filter(|finished| finished.status == "True");
    let outlived =
        lifecycle
            .ttl_seconds_after_finished
            .zip(finished)
            .and_then(|(seconds, finished)| {
                finished
                    .last_transition_time
                    .0
                    .checked_add(SignedDuration::from_secs(i64::from(seconds)))
                    .ok()
            });
    shutdown.into_iter().chain(outlived).min()
}

/// The time that is left; `None` if it has passed.
pub(super) fn left(at: Timestamp, now: Timestamp) -> Option<Duration> {
    Duration::try_from(at.duration_since(now))
        .ok()
        .filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::conditions::{State, Truth};

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_earlier_end_counts() {
        let lifecycle = |shutdown: Option<i64>, ttl| ClaimLifecycle {
            shutdown_time: shutdown.map(|at| Time(time(at))),
            ttl_seconds_after_finished: ttl,
            shutdown_policy: None,
        };
        let mut finished = Vec::new();
        conditions::set(
            &mut finished,
            &State::new("Finished", Truth::True, "PodFailed", ""),
            None,
            time(100),
        );
        assert_eq!(at(None, &finished), None);
        assert_eq!(
            at(Some(&lifecycle(Some(500), None)), &finished),
            Some(time(500))
        );
        assert_eq!(
            at(Some(&lifecycle(Some(500), Some(60))), &finished),
            Some(time(160))
        );
        assert_eq!(
            at(Some(&lifecycle(None, Some(60))), &[]),
            None,
            "it has not finished"
        );
    }

    #[test]
    fn a_claim_is_expired_at_its_end() {
        assert_eq!(left(time(10), time(9)), Some(Duration::from_secs(1)));
        assert_eq!(left(time(10), time(10)), None);
        assert_eq!(left(time(10), time(11)), None);
    }
}
