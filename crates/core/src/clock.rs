//! Time as a value, and the port that provides it.

use std::fmt;
use std::future::Future;
use std::ops::Add;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A moment in milliseconds since 1970-01-01T00:00:00Z.
///
/// Milliseconds, because the store keeps them and they are the finest unit on any wire.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// From whole seconds since the Unix epoch.
    #[must_use]
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// The time since `earlier`; zero if this is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses an RFC 3339 time; finer parts than a millisecond are cut.
    #[must_use]
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        i64::try_from(parsed.unix_timestamp_nanos().div_euclid(1_000_000))
            .ok()
            .map(Self)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

/// RFC 3339 in UTC; a moment outside the calendar shows as the epoch.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        f.write_str(&moment.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

/// The engine's source of time, which a test can replace.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Resolves when [`Clock::now`] has reached `moment`; immediately if that is past.
    fn sleep_until(&self, moment: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_is_written_in_utc_and_read_back() {
        let moment = Timestamp::from_unix_millis(1_700_000_000_123);
        assert_eq!(moment.to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(
            Timestamp::parse_rfc3339("2023-11-14T23:13:20.123+01:00"),
            Some(moment)
        );
        assert_eq!(Timestamp::parse_rfc3339("yesterday"), None);
    }

    #[test]
    fn adding_forever_saturates() {
        let end = Timestamp::from_unix_millis(5) + Duration::MAX;
        assert_eq!(end.unix_millis(), i64::MAX);
        assert_eq!(end.to_string(), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn since_is_never_negative() {
        let (early, late) = (
            Timestamp::from_unix_millis(1),
            Timestamp::from_unix_millis(3),
        );
        assert_eq!(late.since(early), Duration::from_millis(2));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
