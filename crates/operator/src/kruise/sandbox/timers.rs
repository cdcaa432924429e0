//! The shutdown time and the pause time of a sandbox.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shoal_crds::kruise::names::{annotation, condition, reason};
use shoal_crds::kruise::{Sandbox, SandboxPhase, duration};

/// The shortest wait for a time, so that a clock that is a little behind causes no loop.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// The duration of `forever`.
const FOREVER: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// The step that a sandbox's deadlines require.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing, ever.
    Nothing,
    /// Nothing yet: look again after this wait.
    Later(Duration),
    /// It has expired.
    Delete,
    /// It must be paused. A paused sandbox that is kept for some time gets new times.
    Pause {
        /// The new pause time and shutdown time.
        until: Option<Timestamp>,
    },
}

/// Compares the times with the clock.
pub(super) fn due(sandbox: &Sandbox, now: Timestamp) -> Due {
    let status = sandbox.status.as_ref();
    let phase = status.and_then(|status| status.phase).unwrap_or_default();
    if phase == SandboxPhase::Recycling && !recycling_failed(sandbox) {
        return Due::Nothing;
    }
    let finished = matches!(phase, SandboxPhase::Succeeded | SandboxPhase::Failed);
    let spec = &sandbox.spec;
    let shutdown = spec.shutdown_time.as_ref().map(|time| time.0);
    let pause = spec
        .pause_time
        .as_ref()
        .map(|time| time.0)
        .filter(|_| !spec.paused && !finished);
    let annotations = sandbox.metadata.annotations.as_ref();
    let kept = annotations.and_then(|known| known.get(annotation::RESERVE_PAUSED_SANDBOX_DURATION));
    let pause_due = pause.is_some_and(|time| time <= now);
    if shutdown.is_some_and(|time| time <= now) && !(pause_due && kept.is_some()) {
        return Due::Delete;
    }
    if pause_due {
        let until = kept
            .filter(|_| shutdown.is_some())
            .map(|kept| retained(kept, now));
        return Due::Pause { until };
    }
    let next = [shutdown, pause].into_iter().flatten().min();
    next.map_or(Due::Nothing, |next| {
        let left = Duration::try_from(next.duration_since(now)).unwrap_or_default();
        Due::Later(left.max(SHORTEST_WAIT))
    })
}

/// How long a paused sandbox is kept. A duration that cannot be read means forever.
fn retained(kept: &str, now: Timestamp) -> Timestamp {
    let kept = duration::parse(kept)
        .filter(|kept| kept.is_positive())
        .unwrap_or(FOREVER);
    now.checked_add(kept)
        .or_else(|_| now.checked_add(FOREVER))
        .unwrap_or(Timestamp::MAX)
}

fn recycling_failed(sandbox: &Sandbox) -> bool {
    sandbox
        .condition(condition::RECYCLING)
        .is_some_and(|recycling| {
            [reason::RECYCLING_FAILED, reason::RECYCLING_TIMEOUT]
                .contains(&recycling.reason.as_str())
        })
}

/// The patch that pauses a sandbox at its time.
pub(super) fn pause(sandbox: &Sandbox, until: Option<Timestamp>) -> serde_json::Value {
    let mut spec = serde_json::json!({"paused": true});
    if let Some(until) = until {
        spec["pauseTime"] = serde_json::json!(Time(until));
        spec["shutdownTime"] = serde_json::json!(Time(until));
    }
    serde_json::json!({
        "metadata": {"resourceVersion": sandbox.metadata.resource_version},
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn sandbox(spec: Value, annotations: Value) -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "annotations": annotations}, "spec": spec,
        }))
        .unwrap()
    }

    fn times(shutdown: Option<i64>, pause: Option<i64>) -> Value {
        let time = |second: Option<i64>| second.map(|second| at(second).to_string());
        json!({"shutdownTime": time(shutdown), "pauseTime": time(pause)})
    }

    fn kept(value: &str) -> Value {
        json!({annotation::RESERVE_PAUSED_SANDBOX_DURATION: value})
    }

    #[test]
    fn the_nearest_time_counts() {
        let of = |shutdown, pause| due(&sandbox(times(shutdown, pause), json!({})), at(100));
        assert_eq!(of(None, None), Due::Nothing);
        assert_eq!(of(Some(130), None), Due::Later(Duration::from_secs(30)));
        assert_eq!(
            of(Some(130), Some(110)),
            Due::Later(Duration::from_secs(10))
        );
        assert_eq!(of(Some(100), None), Due::Delete);
        assert_eq!(of(Some(99), Some(98)), Due::Delete);
        assert_eq!(of(Some(130), Some(100)), Due::Pause { until: None });
    }

    #[test]
    fn a_paused_sandbox_waits_for_its_shutdown_time_only() {
        let mut spec = times(Some(130), Some(90));
        spec["paused"] = true.into();
        let due = due(&sandbox(spec, json!({})), at(100));
        assert_eq!(due, Due::Later(Duration::from_secs(30)));
    }

    #[test]
    fn a_sandbox_that_is_kept_is_paused_before_it_is_deleted() {
        let of = |annotation: &str| {
            due(
                &sandbox(times(Some(99), Some(99)), kept(annotation)),
                at(100),
            )
        };
        assert_eq!(
            of("1h"),
            Due::Pause {
                until: Some(at(3700))
            }
        );
        let forever = Due::Pause {
            until: Some(at(100).checked_add(FOREVER).unwrap()),
        };
        for text in ["forever", "what?", "-1h"] {
            assert_eq!(of(text), forever);
        }
        let never = due(&sandbox(times(None, Some(99)), kept("1h")), at(100));
        assert_eq!(never, Due::Pause { until: None });
    }

    #[test]
    fn finished_sandboxes_expire_but_are_not_paused() {
        let mut finished = sandbox(times(Some(130), Some(90)), json!({}));
        finished.status = serde_json::from_value(json!({"phase": "Failed"})).unwrap();
        assert_eq!(due(&finished, at(100)), Due::Later(Duration::from_secs(30)));
        assert_eq!(due(&finished, at(130)), Due::Delete);
    }

    #[test]
    fn a_sandbox_that_returns_to_its_pool_has_no_times() {
        let mut recycling = sandbox(times(Some(99), None), json!({}));
        recycling.status = serde_json::from_value(json!({"phase": "Recycling"})).unwrap();
        assert_eq!(due(&recycling, at(100)), Due::Nothing);
        recycling.status = serde_json::from_value(json!({
            "phase": "Recycling",
            "conditions": [{"type": "Recycling", "status": "False", "reason": "RecyclingTimeout", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }))
        .unwrap();
        assert_eq!(due(&recycling, at(100)), Due::Delete);
    }
}
