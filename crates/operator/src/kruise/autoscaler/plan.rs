//! The decisions of an autoscaler.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use shoal_crds::kruise::names::reason;
use shoal_crds::kruise::{CapacityPolicy, PoolAutoscalerSpec, ScalingRules};

use super::capacity::{Means, Need, Target};
use super::schedule::Due;

/// The least time after any change until the pool grows, and after it shrank until it shrinks again, in
/// seconds.
const GROW: i32 = 60;
const SHRINK: i32 = 300;

/// The time after which a sandbox that should have started counts as failed, and then a little more.
const AFTER_PENDING: Duration = Duration::from_secs(10);

/// The inputs of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observed<'a> {
    /// The wanted size of the pool.
    pub(crate) replicas: i32,
    /// The recent state of the pool; `None` without a policy, or too early.
    pub(crate) means: Option<(&'a Target, Means)>,
    /// The last schedule that came due.
    pub(crate) due: Option<&'a Due>,
    /// The size that the schedule before asked for; none when a policy asks for another size meanwhile.
    pub(crate) asked: Option<i32>,
    /// When the autoscaler last changed the pool.
    pub(crate) last_change: Option<Timestamp>,
    /// When it last made it smaller.
    pub(crate) last_shrink: Option<Timestamp>,
    /// How many sandboxes do not start, and how many of them stop the pool from growing.
    pub(crate) blocked: Blocked,
    /// How long a sandbox may take to start.
    pub(crate) pending: Duration,
    /// Now.
    pub(crate) now: Timestamp,
}

/// Sandboxes that do not start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) count: usize,
    pub(crate) most: usize,
}

impl Blocked {
    fn is_exhausted(self) -> bool {
        self.most > 0 && self.count >= self.most
    }
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The desired size of the pool.
    pub(crate) replicas: i32,
    /// Why, for an event; none when nothing changes.
    pub(crate) why: Option<String>,
    /// The reason of the condition `ScalingLimited`.
    pub(crate) limited: &'static str,
    /// Why the pool does not grow although it should.
    pub(crate) blocked: Option<String>,
}

/// Decides about the size of a pool. A schedule that comes due wins, and waits for nothing.
pub(crate) fn decide(spec: &PoolAutoscalerSpec, seen: &Observed<'_>) -> Decision {
    if let Some(due) = seen.due {
        let why = format!("schedule {:?} was due at {}", due.name, due.at);
        return within(spec, seen.replicas, due.replicas.into(), why);
    }
    if !(spec.min_replicas..=spec.max_replicas).contains(&seen.replicas) {
        let why = "the pool was out of its bounds".to_owned();
        return within(spec, seen.replicas, seen.replicas.into(), why);
    }
    let stay = within(spec, seen.replicas, seen.replicas.into(), String::new());
    let Some((target, means)) = seen.means else {
        return as_asked(spec, seen).unwrap_or(stay);
    };
    match target.need(&means, seen.replicas.into()) {
        Need::Nothing => stay,
        Need::More(size) => {
            let more = within(
                spec,
                seen.replicas,
                size,
                "too few sandboxes are free".to_owned(),
            );
            if more.replicas == seen.replicas {
                return more;
            }
            if seen.blocked.is_exhausted() {
                let Blocked { count, most } = seen.blocked;
                return Decision {
                    blocked: Some(format!(
                        "the pool should have {size} sandboxes, but {count} of it do not start, and {most} are the most"
                    )),
                    ..stay
                };
            }
            if is_over(seen.last_change, grow_window(spec, seen.pending), seen.now) {
                more
            } else {
                stay
            }
        }
        Need::Fewer(size) => {
            let fewer = within(
                spec,
                seen.replicas,
                size,
                "too many sandboxes are free".to_owned(),
            );
            if is_over(seen.last_shrink, shrink_window(spec), seen.now) {
                fewer
            } else {
                Decision {
                    limited: fewer.limited,
                    ..stay
                }
            }
        }
    }
}

/// The size of a schedule holds until the next one, and so does its limit.
fn as_asked(spec: &PoolAutoscalerSpec, seen: &Observed<'_>) -> Option<Decision> {
    let asked = within(spec, seen.replicas, seen.asked?.into(), String::new());
    (asked.replicas == seen.replicas).then_some(asked)
}

/// A size, within the bounds.
fn within(spec: &PoolAutoscalerSpec, before: i32, wanted: i64, why: String) -> Decision {
    let (least, most) = (spec.min_replicas, spec.max_replicas);
    let (replicas, limited) = if wanted > i64::from(most) {
        (most, reason::TOO_MANY_REPLICAS)
    } else if wanted < i64::from(least) {
        (least, reason::TOO_FEW_REPLICAS)
    } else {
        let wanted = i32::try_from(wanted).unwrap_or(most);
        (wanted, reason::DESIRED_WITHIN_RANGE)
    };
    Decision {
        replicas,
        why: (replicas != before).then_some(why),
        limited,
        blocked: None,
    }
}

fn rule(
    spec: &PoolAutoscalerSpec,
    of: impl Fn(&CapacityPolicy) -> &Option<ScalingRules>,
    usual: i32,
) -> SignedDuration {
    let policy = spec.capacity_policy.as_ref();
    let rules = policy.and_then(|policy| of(policy).as_ref());
    let seconds = rules.and_then(|rules| rules.stabilization_window_seconds);
    SignedDuration::from_secs(seconds.unwrap_or(usual).into())
}

/// Sandboxes that a change asked for have started after that, or failed.
fn grow_window(spec: &PoolAutoscalerSpec, pending: Duration) -> SignedDuration {
    let started = SignedDuration::try_from(pending + AFTER_PENDING);
    rule(spec, |policy| &policy.scale_up, GROW).max(started.unwrap_or(SignedDuration::ZERO))
}

fn shrink_window(spec: &PoolAutoscalerSpec) -> SignedDuration {
    rule(spec, |policy| &policy.scale_down, SHRINK)
}

/// Whether a time has gone since. A clock that was set back does not stop an autoscaler for longer.
fn is_over(since: Option<Timestamp>, window: SignedDuration, now: Timestamp) -> bool {
    since.is_none_or(|since| {
        let gone = now.duration_since(since);
        gone >= window || gone < SignedDuration::ZERO
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-05T08:00:00Z";

    fn spec(min: i32, max: i32, more: Value) -> PoolAutoscalerSpec {
        let mut policy = json!({"targetAvailable": 5});
        policy
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "scaleTargetRef": {"kind": "SandboxSet", "name": "code"},
            "minReplicas": min, "maxReplicas": max, "capacityPolicy": policy,
        }))
        .unwrap()
    }

    fn ago(seconds: i64) -> Option<Timestamp> {
        let now: Timestamp = NOW.parse().unwrap();
        Some(now - SignedDuration::from_secs(seconds))
    }

    fn observed(replicas: i32) -> Observed<'static> {
        Observed {
            replicas,
            means: None,
            due: None,
            asked: None,
            last_change: None,
            last_shrink: None,
            blocked: Blocked::default(),
            pending: Duration::from_secs(50),
            now: NOW.parse().unwrap(),
        }
    }

    /// The decision about a pool of this size with so many free sandboxes.
    fn decided(spec: &PoolAutoscalerSpec, seen: Observed<'_>, available: i32) -> Decision {
        let target = Target::read(spec.capacity_policy.as_ref().unwrap()).unwrap();
        let mut samples = super::super::capacity::Samples::default();
        let (window, start) = (Duration::from_secs(2), tokio::time::Instant::now());
        for second in 0..2 {
            let at = start + Duration::from_secs(second);
            samples.add(at, available, seen.replicas, window);
        }
        decide(
            spec,
            &Observed {
                means: Some((&target, samples.means(window).unwrap())),
                ..seen
            },
        )
    }

    #[test]
    fn the_first_change_waits_for_nothing() {
        let spec = spec(6, 20, json!({}));
        let decision = decided(&spec, observed(8), 0);
        assert_eq!(
            (decision.replicas, decision.limited),
            (13, reason::DESIRED_WITHIN_RANGE)
        );
        assert!(decision.why.unwrap().contains("too few"));
        assert_eq!(decided(&spec, observed(12), 12).replicas, 6);
        let decision = decided(&spec, observed(8), 5);
        assert_eq!((decision.replicas, decision.why), (8, None));
    }

    #[test]
    fn a_pool_grows_some_time_after_any_change() {
        let quick = spec(6, 20, json!({}));
        let slow = spec(
            6,
            20,
            json!({"scaleUp": {"stabilizationWindowSeconds": 100}}),
        );
        for (spec, pending, seconds, expected) in [
            (&quick, 50, 59, 8),
            (&quick, 50, 60, 13),
            (&slow, 50, 99, 8),
            (&slow, 50, 100, 13),
            (&quick, 90, 99, 8),
            (&quick, 90, 100, 13),
        ] {
            let seen = Observed {
                last_change: ago(seconds),
                last_shrink: ago(seconds),
                pending: Duration::from_secs(pending),
                ..observed(8)
            };
            assert_eq!(
                decided(spec, seen, 0).replicas,
                expected,
                "{pending} {seconds}"
            );
        }
        // The clock was set back.
        let seen = Observed {
            last_change: ago(-3600),
            ..observed(8)
        };
        assert_eq!(decided(&quick, seen, 0).replicas, 13);
    }

    #[test]
    fn a_pool_shrinks_some_time_after_it_shrank() {
        let usual = spec(6, 20, json!({}));
        let quick = spec(
            6,
            20,
            json!({"scaleDown": {"stabilizationWindowSeconds": 60}}),
        );
        for (spec, seconds, expected) in [(&usual, 299, 12), (&usual, 300, 6), (&quick, 60, 6)] {
            let seen = Observed {
                last_change: ago(1),
                last_shrink: ago(seconds),
                ..observed(12)
            };
            assert_eq!(decided(spec, seen, 12).replicas, expected, "{seconds}");
        }
    }

    #[test]
    fn bounds_hold_and_are_told() {
        let spec = spec(6, 10, json!({}));
        let decision = decided(&spec, observed(8), 0);
        assert_eq!(
            (decision.replicas, decision.limited),
            (10, reason::TOO_MANY_REPLICAS)
        );
        let decision = decided(&spec, observed(10), 0);
        assert_eq!(
            (decision.limited, decision.why),
            (reason::TOO_MANY_REPLICAS, None)
        );
        let decision = decided(&spec, observed(7), 7);
        assert_eq!(
            (decision.replicas, decision.limited),
            (6, reason::TOO_FEW_REPLICAS)
        );
        // The size that a schedule asked for stays limited until the next one, unless the pool was changed.
        for (asked, replicas, limited) in [
            (20, 10, reason::TOO_MANY_REPLICAS),
            (1, 6, reason::TOO_FEW_REPLICAS),
            (20, 9, reason::DESIRED_WITHIN_RANGE),
            (9, 9, reason::DESIRED_WITHIN_RANGE),
        ] {
            let seen = Observed {
                asked: Some(asked),
                ..observed(replicas)
            };
            let decision = decide(&spec, &seen);
            assert_eq!(
                (decision.replicas, decision.limited, decision.why),
                (replicas, limited, None),
                "{asked}"
            );
        }
        // Another client has changed the pool.
        assert_eq!(decide(&spec, &observed(2)).replicas, 6);
        assert_eq!(decide(&spec, &observed(50)).replicas, 10);
    }

    #[test]
    fn a_schedule_wins_and_waits_for_nothing() {
        let spec = spec(6, 20, json!({}));
        let due = Due {
            name: "night".to_owned(),
            at: NOW.parse().unwrap(),
            replicas: 0,
        };
        let seen = Observed {
            due: Some(&due),
            last_change: ago(1),
            last_shrink: ago(1),
            ..observed(12)
        };
        let decision = decided(&spec, seen, 0);
        assert_eq!(
            (decision.replicas, decision.limited),
            (6, reason::TOO_FEW_REPLICAS)
        );
        assert!(decision.why.unwrap().contains("night"));
    }

    #[test]
    fn a_pool_whose_sandboxes_do_not_start_does_not_grow() {
        let spec = spec(6, 20, json!({}));
        let blocked = |count| Observed {
            blocked: Blocked { count, most: 2 },
            ..observed(8)
        };
        assert_eq!(decided(&spec, blocked(1), 0).replicas, 13);
        let decision = decided(&spec, blocked(2), 0);
        assert_eq!((decision.replicas, decision.why), (8, None));
        assert!(decision.blocked.unwrap().contains("do not start"));
        // It may shrink.
        assert_eq!(decided(&spec, blocked(2), 8).replicas, 6);
    }
}
