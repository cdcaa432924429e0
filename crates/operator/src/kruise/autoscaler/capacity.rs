//! The size by demand: keeps a number or a share of the pool free.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use shoal_crds::kruise::{CapacityPolicy, PoolAutoscalerSpec};
use tokio::time::Instant;

/// The tolerance of a policy that names none, in percent.
const TOLERANCE: i64 = 10;

/// A number, or a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Amount {
    Number(i64),
    Percent(i64),
}

impl Amount {
    fn read(text: &IntOrString) -> Option<Self> {
        let amount = match text {
            IntOrString::Int(number) => Self::Number((*number).into()),
            IntOrString::String(text) => match text.strip_suffix('%') {
                Some(percent) => Self::Percent(percent.parse().ok()?),
                None => Self::Number(text.parse().ok()?),
            },
        };
        let (Self::Number(value) | Self::Percent(value)) = amount;
        (value >= 0).then_some(amount)
    }
}

/// The wanted free members, and the tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    available: Amount,
    tolerance: Amount,
}

/// The free sandboxes that a pool of a size should have, at least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    target: i64,
    lower: i64,
    upper: i64,
}

/// The size of a pool on the average, as a sum over samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Means {
    available: i64,
    replicas: i64,
    samples: i64,
}

/// The decision about a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Nothing,
    /// More sandboxes: this size.
    More(i64),
    /// Fewer.
    Fewer(i64),
}

impl Target {
    /// Reads a policy.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn read(policy: &CapacityPolicy) -> Result<Self, String> {
        let read = |field: &str, text: &IntOrString| {
            let wrong = || format!("capacityPolicy.{field} is neither a number nor a percentage");
            Amount::read(text).ok_or_else(wrong)
        };
        Ok(Self {
            available: read("targetAvailable", &policy.target_available)?,
            tolerance: match &policy.tolerance {
                Some(tolerance) => read("tolerance", tolerance)?,
                None => Amount::Percent(TOLERANCE),
            },
        })
    }

    /// Refuses a target that the bounds of the pool contradict.
    ///
    /// # Errors
    /// Says how.
    pub(crate) fn check(&self, spec: &PoolAutoscalerSpec) -> Result<(), String> {
        let (least, most) = (i64::from(spec.min_replicas), i64::from(spec.max_replicas));
        match self.available {
            Amount::Percent(percent) if percent > 100 => {
                return Err("capacityPolicy.targetAvailable is more than 100%".to_owned());
            }
            Amount::Percent(_) if least < 1 => {
                return Err(
                    "minReplicas must be at least 1: a share of an empty pool is nothing, so it would stay empty"
                        .to_owned(),
                );
            }
            Amount::Number(number) if number > most => {
                return Err("capacityPolicy.targetAvailable is more than maxReplicas".to_owned());
            }
            _ => {}
        }
        let too_wide = match (self.available, self.tolerance) {
            (Amount::Percent(target), Amount::Percent(tolerance))
            | (Amount::Number(target), Amount::Number(tolerance)) => tolerance >= target,
            (Amount::Number(_), Amount::Percent(tolerance)) => tolerance >= 100,
            (Amount::Percent(_), Amount::Number(_)) => false,
        };
        if too_wide {
            return Err("capacityPolicy.tolerance must be less than targetAvailable".to_owned());
        }
        // A pool of one sandbox more than the least, with all of them free, must have too many of them.
        let upper = self.marks(least + 1, 1).upper;
        if upper > least {
            return Err(format!(
                "the pool could never shrink to minReplicas {least}: with one sandbox more, up to {upper} may be free; \
                 raise minReplicas, or lower capacityPolicy.targetAvailable or its tolerance"
            ));
        }
        Ok(())
    }

    /// The marks of a pool of the size `sum / samples`.
    fn marks(&self, sum: i64, samples: i64) -> Marks {
        let share = |percent: i64| rounded_up(sum.saturating_mul(percent), 100 * samples);
        let (target, lower, upper) = match (self.available, self.tolerance) {
            (Amount::Percent(target), Amount::Percent(tolerance)) => (
                share(target),
                share((target - tolerance).max(0)),
                share(target + tolerance),
            ),
            (available, tolerance) => {
                let target = match available {
                    Amount::Number(number) => number,
                    Amount::Percent(percent) => share(percent),
                };
                let off = match tolerance {
                    Amount::Number(number) => number,
                    Amount::Percent(percent) => rounded_up(target.saturating_mul(percent), 100),
                };
                (target, target - off, target.saturating_add(off))
            }
        };
        Marks {
            target,
            lower: lower.max(0),
            upper,
        }
    }

    /// The decision about a pool whose wanted size is `spec`. A pool that is about to change is left alone.
    pub(crate) fn need(&self, means: &Means, spec: i64) -> Need {
        let Means {
            available,
            replicas,
            samples,
        } = *means;
        let marks = self.marks(replicas, samples);
        let of_all = |count: i64| count.saturating_mul(samples);
        if available < of_all(marks.lower) {
            if of_all(spec) > replicas {
                return Need::Nothing;
            }
            let more = (of_all(marks.target) - available).max(samples);
            return Need::More(rounded_up(replicas + more, samples));
        }
        if available > of_all(marks.upper) {
            if of_all(spec) < replicas {
                return Need::Nothing;
            }
            let fewer = available - of_all(marks.target);
            return Need::Fewer(rounded_up(replicas - fewer, samples).max(0));
        }
        Need::Nothing
    }
}

fn rounded_up(number: i64, by: i64) -> i64 {
    number.div_euclid(by) + i64::from(number.rem_euclid(by) > 0)
}

/// The recent observations of a pool.
#[derive(Debug, Default)]
pub(crate) struct Samples(VecDeque<(Instant, i64, i64)>);

impl Samples {
    /// Adds a sample, and drops those that are older than `window`.
    pub(crate) fn add(&mut self, now: Instant, available: i32, replicas: i32, window: Duration) {
        self.0.push_back((now, available.into(), replicas.into()));
        while let Some((oldest, ..)) = self.0.front()
            && now.duration_since(*oldest) > window
        {
            self.0.pop_front();
        }
    }

    /// Their means; none before they span half of `window`.
    pub(crate) fn means(&self, window: Duration) -> Option<Means> {
        let (first, ..) = self.0.front()?;
        let (last, ..) = self.0.back()?;
        if self.0.len() < 2 || last.duration_since(*first) < window / 2 {
            return None;
        }
        let sum = |part: fn(&(Instant, i64, i64)) -> i64| self.0.iter().map(part).sum();
        Some(Means {
            available: sum(|sample| sample.1),
            replicas: sum(|sample| sample.2),
            samples: i64::try_from(self.0.len()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn target(policy: Value) -> Target {
        Target::read(&serde_json::from_value(policy).unwrap()).unwrap()
    }

    fn means(available: i64, replicas: i64) -> Means {
        Means {
            available,
            replicas,
            samples: 1,
        }
    }

    fn spec(min: i32, max: i32) -> PoolAutoscalerSpec {
        PoolAutoscalerSpec {
            min_replicas: min,
            max_replicas: max,
            ..PoolAutoscalerSpec::default()
        }
    }

    #[test]
    fn a_pool_grows_to_its_target_and_shrinks_to_it() {
        // 3 to 5 of 10 may be free.
        let share = target(json!({"targetAvailable": "40%", "tolerance": "10%"}));
        assert_eq!(share.need(&means(4, 10), 10), Need::Nothing);
        assert_eq!(share.need(&means(3, 10), 10), Need::Nothing);
        assert_eq!(share.need(&means(2, 10), 10), Need::More(12));
        assert_eq!(share.need(&means(5, 10), 10), Need::Nothing);
        assert_eq!(share.need(&means(9, 10), 10), Need::Fewer(5));
        let number = target(json!({"targetAvailable": 5}));
        assert_eq!(number.need(&means(0, 3), 3), Need::More(8));
        assert_eq!(number.need(&means(7, 10), 10), Need::Fewer(8));
        assert_eq!(number.need(&means(6, 10), 10), Need::Nothing);
    }

    #[test]
    fn a_pool_that_is_about_to_change_is_left_alone() {
        let number = target(json!({"targetAvailable": 5}));
        assert_eq!(number.need(&means(0, 3), 8), Need::Nothing);
        assert_eq!(number.need(&means(9, 10), 6), Need::Nothing);
    }

    #[test]
    fn means_are_not_rounded_before_they_are_compared() {
        let number = target(json!({"targetAvailable": 4, "tolerance": 1}));
        let means = |available, replicas| Means {
            available,
            replicas,
            samples: 3,
        };
        // 2⅔ of 9⅓ are free: at least 3 should be.
        assert_eq!(number.need(&means(8, 28), 9), Need::More(11));
        assert_eq!(number.need(&means(9, 28), 9), Need::Nothing);
        // 5⅓ of 9⅓ are free: at most 5 should be.
        assert_eq!(number.need(&means(16, 28), 10), Need::Fewer(8));
    }

    #[test]
    fn a_target_within_its_bounds_is_taken() {
        for (policy, min, max, told) in [
            (json!({"targetAvailable": "50%"}), 0, 10, "minReplicas"),
            (json!({"targetAvailable": "50%"}), 1, 10, "never shrink"),
            (json!({"targetAvailable": "50%"}), 2, 10, ""),
            (json!({"targetAvailable": "150%"}), 2, 10, "100%"),
            (json!({"targetAvailable": 20}), 2, 10, "maxReplicas"),
            (json!({"targetAvailable": 5}), 2, 10, "never shrink"),
            (json!({"targetAvailable": 5}), 6, 10, ""),
            (
                json!({"targetAvailable": 5, "tolerance": 5}),
                10,
                20,
                "tolerance",
            ),
            (
                json!({"targetAvailable": "20%", "tolerance": "20%"}),
                10,
                20,
                "tolerance",
            ),
            (
                json!({"targetAvailable": 5, "tolerance": "100%"}),
                10,
                20,
                "tolerance",
            ),
        ] {
            let checked = target(policy.clone()).check(&spec(min, max));
            match told {
                "" => assert_eq!(checked, Ok(()), "{policy}"),
                told => assert!(checked.unwrap_err().contains(told), "{policy}"),
            }
        }
        let wrong = serde_json::from_value(json!({"targetAvailable": "many"})).unwrap();
        assert!(
            Target::read(&wrong)
                .unwrap_err()
                .contains("targetAvailable")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn means_need_half_a_window() {
        let (window, step) = (Duration::from_secs(30), Duration::from_secs(5));
        let mut samples = Samples::default();
        for _ in 0..3 {
            assert_eq!(samples.means(window), None);
            samples.add(Instant::now(), 2, 4, window);
            tokio::time::advance(step).await;
        }
        samples.add(Instant::now(), 6, 4, window);
        let expected = Means {
            available: 12,
            replicas: 16,
            samples: 4,
        };
        assert_eq!(samples.means(window), Some(expected));
        // Older samples are dropped, however long ago the last look was.
        tokio::time::advance(window * 2).await;
        samples.add(Instant::now(), 0, 4, window);
        assert_eq!(samples.means(window), None);
    }
}
