//! The quota of an API key: how many sandboxes it may have, with how many processors and how much memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// The dimension of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dimension {
    /// Sandboxes.
    #[serde(rename = "sandbox.count")]
    Sandboxes,
    /// Processor time, in thousandths of a processor.
    #[serde(rename = "limits.cpu")]
    Cpu,
    /// Memory, in mebibytes.
    #[serde(rename = "limits.memory")]
    Memory,
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandboxes => "sandbox.count",
            Self::Cpu => "limits.cpu (thousandths of a processor)",
            Self::Memory => "limits.memory (MiB)",
        })
    }
}

/// Which sandboxes a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All, with those that are paused.
    All,
    /// Sandboxes that are not paused.
    Running,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Running => "running",
        })
    }
}

/// One limit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaLimit {
    /// Its dimension.
    pub dimension: Dimension,
    /// The sandboxes that count.
    pub scope: Scope,
    /// The most there may be.
    pub limit: u64,
}

/// The quota of a key: at most one limit for each dimension and scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Limits", into = "Limits")]
pub struct Quota(BTreeMap<(Dimension, Scope), u64>);

/// The form of a quota in JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    limits: Vec<QuotaLimit>,
}

/// A quota that says two things at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the quota has two limits of {dimension} for {scope} sandboxes")]
pub struct LimitTwice {
    dimension: Dimension,
    scope: Scope,
}

impl Quota {
    /// The quota with these limits.
    ///
    /// # Errors
    /// When two limits have the same dimension and scope.
    pub fn of(limits: impl IntoIterator<Item = QuotaLimit>) -> Result<Self, LimitTwice> {
        let mut quota = Self::default();
        for QuotaLimit {
            dimension,
            scope,
            limit,
        } in limits
        {
            if quota.0.insert((dimension, scope), limit).is_some() {
                return Err(LimitTwice { dimension, scope });
            }
        }
        Ok(quota)
    }

    /// Its limits, in order.
    pub fn limits(&self) -> impl Iterator<Item = QuotaLimit> + '_ {
        let limits = self.0.iter();
        limits.map(|((dimension, scope), limit)| QuotaLimit {
            dimension: *dimension,
            scope: *scope,
            limit: *limit,
        })
    }

    /// Whether a dimension is limited.
    #[must_use]
    pub fn bounds(&self, dimension: Dimension) -> bool {
        self.0.keys().any(|(bound, _)| *bound == dimension)
    }

    /// Whether `more` fits in addition to the present use. A request for nothing more fits even over a limit.
    ///
    /// # Errors
    /// Names the first limit that `more` would exceed.
    pub fn admits(&self, used: &Used, more: Amount) -> Result<(), OverQuota> {
        for limit in self.limits() {
            let used = used.in_scope(limit.scope).of(limit.dimension);
            let asked = more.of(limit.dimension);
            if asked > 0 && used.saturating_add(asked) > limit.limit {
                return Err(OverQuota { limit, used, asked });
            }
        }
        Ok(())
    }
}

impl TryFrom<Limits> for Quota {
    type Error = LimitTwice;

    fn try_from(limits: Limits) -> Result<Self, LimitTwice> {
        Self::of(limits.limits)
    }
}

impl From<Quota> for Limits {
    fn from(quota: Quota) -> Self {
        Self {
            limits: quota.limits().collect(),
        }
    }
}

/// An amount in each dimension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Sandboxes.
    pub sandboxes: u64,
    /// Thousandths of a processor.
    pub cpu: u64,
    /// Mebibytes of memory.
    pub memory: u64,
}

impl Amount {
    /// The amount in one dimension.
    #[must_use]
    pub fn of(&self, dimension: Dimension) -> u64 {
        match dimension {
            Dimension::Sandboxes => self.sandboxes,
            Dimension::Cpu => self.cpu,
            Dimension::Memory => self.memory,
        }
    }

    /// The larger of two amounts, in each dimension.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.max(other.sandboxes),
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
        }
    }

    /// The excess of this amount over another, in each dimension.
    #[must_use]
    pub fn beyond(self, other: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_sub(other.sandboxes),
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
        }
    }

    /// Whether it is no more than another, in each dimension.
    #[must_use]
    pub fn is_within(self, other: Self) -> bool {
        self.beyond(other) == Self::default()
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.sandboxes = self.sandboxes.saturating_add(other.sandboxes);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
    }
}

/// The usage of a key's sandboxes, and the reservations for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    all: Amount,
    running: Amount,
}

impl Used {
    /// Counts sandboxes and reservations, each under the name of its sandbox. A sandbox that has both
    /// uses the larger amount: a reservation is what it may get, not more of it.
    #[must_use]
    pub fn count<'a>(
        sandboxes: impl IntoIterator<Item = (&'a str, Amount, Scope)>,
        reserved: impl IntoIterator<Item = (&'a str, Amount)>,
    ) -> Self {
        let mut all: BTreeMap<&str, (Amount, Scope)> = BTreeMap::new();
        for (name, amount, scope) in sandboxes {
            all.insert(name, (amount, scope));
        }
        for (name, amount) in reserved {
            let (most, _) = all.entry(name).or_insert((amount, Scope::Running));
            *most = most.max(amount);
        }
        let mut used = Self::default();
        for (amount, scope) in all.into_values() {
            used.all += amount;
            if scope == Scope::Running {
                used.running += amount;
            }
        }
        used
    }

    fn in_scope(&self, scope: Scope) -> Amount {
        match scope {
            Scope::All => self.all,
            Scope::Running => self.running,
        }
    }
}

/// A request that exceeds the quota of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "api-key quota exceeded: {} for {} sandboxes: {asked} more than the {used} in use are over the limit of {}",
    limit.dimension, limit.scope, limit.limit
)]
pub struct OverQuota {
    /// The limit.
    pub limit: QuotaLimit,
    /// The usage.
    pub used: u64,
    /// The need of the request.
    pub asked: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn quota(limits: &Value) -> Quota {
        serde_json::from_value(json!({ "limits": limits })).unwrap()
    }

    fn amount(sandboxes: u64, cpu: u64, memory: u64) -> Amount {
        Amount {
            sandboxes,
            cpu,
            memory,
        }
    }

    #[test]
    fn a_quota_is_written_as_it_is_read() {
        let text = json!({"limits": [
            {"dimension": "sandbox.count", "scope": "all", "limit": 3},
            {"dimension": "limits.cpu", "scope": "running", "limit": 4000},
        ]});
        let quota: Quota = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(json!(quota), text);
        assert!(quota.bounds(Dimension::Cpu) && !quota.bounds(Dimension::Memory));
    }

    #[test]
    fn what_is_no_quota_is_refused() {
        for wrong in [
            json!({}),
            json!({"limits": [{"dimension": "sandbox.count", "scope": "all", "limit": -1}]}),
            json!({"limits": [{"dimension": "sandbox.count", "scope": "some", "limit": 1}]}),
            json!({"limits": [{"dimension": "gpus", "scope": "all", "limit": 1}]}),
            json!({"limits": [{"dimension": "limits.cpu", "scope": "all"}]}),
            json!({"limits": [], "more": 1}),
            json!({"limits": [
                {"dimension": "sandbox.count", "scope": "all", "limit": 1},
                {"dimension": "sandbox.count", "scope": "all", "limit": 2},
            ]}),
        ] {
            let read = serde_json::from_value::<Quota>(wrong.clone());
            assert!(read.is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_counts_the_sandboxes_of_its_scope() {
        let quota = quota(&json!([
            {"dimension": "sandbox.count", "scope": "all", "limit": 3},
            {"dimension": "sandbox.count", "scope": "running", "limit": 2},
        ]));
        let one = amount(1, 0, 0);
        let paused = ("p", one, Scope::All);
        let used = Used::count([paused, ("a", one, Scope::Running)], []);
        assert_eq!(quota.admits(&used, one), Ok(()));
        let used = Used::count([paused, ("a", one, Scope::Running)], [("b", one)]);
        let over = quota.admits(&used, one).unwrap_err();
        assert_eq!((over.used, over.asked, over.limit.limit), (3, 1, 3));
        let used = Used::count([("a", one, Scope::Running), ("b", one, Scope::Running)], []);
        let over = quota.admits(&used, one).unwrap_err().to_string();
        assert!(over.contains("running") && over.contains("2"), "{over}");
    }

    #[test]
    fn a_reservation_of_a_sandbox_that_exists_counts_what_it_adds() {
        let (small, large) = (amount(1, 500, 64), amount(1, 1500, 64));
        let used = Used::count([("a", small, Scope::Running)], [("a", large), ("a", small)]);
        assert_eq!(used.all, large);
        // One that the sandbox has reached already.
        let used = Used::count([("a", large, Scope::Running)], [("a", small)]);
        assert_eq!(used.all, large);
        assert_eq!(large.beyond(small), amount(0, 1000, 0));
        assert!(small.is_within(large) && !large.is_within(small));
    }

    #[test]
    fn what_does_not_grow_fits_over_a_limit() {
        let quota = quota(&json!([{"dimension": "limits.cpu", "scope": "all", "limit": 1000}]));
        let used = Used::count([("a", amount(1, 3000, 0), Scope::Running)], []);
        assert_eq!(quota.admits(&used, amount(1, 0, 64)), Ok(()));
        assert!(quota.admits(&used, amount(0, 1, 0)).is_err());
    }
}
