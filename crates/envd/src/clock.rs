//! Sleeping until a deadline, and setting the system clock.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, Timespec};
use time::OffsetDateTime;
use tokio::time::Instant;

/// Tolerated clock error before the clock is set. A message is late by its transfer time, so a
/// clock that is ahead must not be set back for that (E2B's values).
const MAX_BEHIND: Duration = Duration::from_millis(50);
const MAX_AHEAD: Duration = Duration::from_secs(5);

/// Sleeps until the deadline, or forever without one.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Unix time in seconds.
pub(crate) fn unix_now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// Whether a clock that shows `now` must be set to `target`.
fn is_off(now: OffsetDateTime, target: OffsetDateTime) -> bool {
    target - now > MAX_BEHIND || now - target > MAX_AHEAD
}

/// Sets the system clock if it is off. Returns false if it is not. gVisor permits no change, and
/// needs none: its clock is the host's.
///
/// # Errors
/// If the system call fails.
pub(crate) fn set(target: OffsetDateTime) -> rustix::io::Result<bool> {
    if !is_off(SystemTime::now().into(), target) {
        return Ok(false);
    }
    let time = Timespec {
        tv_sec: target.unix_timestamp(),
        tv_nsec: target.nanosecond().into(),
    };
    rustix::time::clock_settime(ClockId::Realtime, time).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_set_when_its_error_exceeds_the_tolerance() {
        let now = OffsetDateTime::UNIX_EPOCH;
        assert!(!is_off(now, now));
        assert!(!is_off(now, now + MAX_BEHIND));
        assert!(is_off(now, now + MAX_BEHIND + Duration::from_millis(1)));
        assert!(!is_off(now + MAX_AHEAD, now));
        assert!(is_off(now + MAX_AHEAD + Duration::from_millis(1), now));
    }
}
