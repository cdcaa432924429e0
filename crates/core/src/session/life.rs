//! When the machine of a session ends, and when a window closes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// How long a machine lives after its last command.
pub const IDLE: Duration = Duration::from_secs(3600);

/// How long a machine of a session with `persist` lives after its last command.
pub const PERSISTENT: Duration = Duration::from_secs(24 * 3600);

/// How long a window stays open without activity.
pub const WINDOW_IDLE: Duration = Duration::from_secs(600);

/// The facts that decide when a session's machine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Whether it is kept for a day instead of an hour.
    pub persist: bool,
    /// When the last command ended, or the machine started.
    pub last_execution: Timestamp,
}

impl Life {
    /// How long the machine lives after its last command.
    #[must_use]
    pub fn idle(&self) -> Duration {
        if self.persist { PERSISTENT } else { IDLE }
    }

    /// When the machine ends; none while commands run, because they count as activity.
    #[must_use]
    pub fn deadline(&self, running: usize) -> Option<Timestamp> {
        (running == 0).then(|| self.last_execution + self.idle())
    }

    /// Whether the machine ends now.
    #[must_use]
    pub fn is_over(&self, running: usize, now: Timestamp) -> bool {
        self.deadline(running)
            .is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: Timestamp = Timestamp::from_unix_seconds(1_000_000);

    fn at(seconds: u64) -> Timestamp {
        BEGUN + Duration::from_secs(seconds)
    }

    fn life(persist: bool) -> Life {
        Life {
            persist,
            last_execution: BEGUN,
        }
    }

    #[test]
    fn r2_013_a_machine_ends_an_hour_after_its_last_command() {
        assert!(!life(false).is_over(0, at(3599)));
        assert!(life(false).is_over(0, at(3600)));
    }

    #[test]
    fn r2_014_a_persistent_one_ends_after_a_day() {
        assert!(!life(true).is_over(0, at(24 * 3600 - 1)));
        assert!(life(true).is_over(0, at(24 * 3600)));
    }

    #[test]
    fn r2_015_a_running_command_keeps_the_machine() {
        assert!(!life(false).is_over(1, at(100 * 3600)));
        assert_eq!(life(false).deadline(1), None);
    }

    #[test]
    fn r2_016_persist_moves_the_deadline() {
        let mut life = life(false);
        life.persist = true;
        assert_eq!(life.deadline(0), Some(at(24 * 3600)));
        life.persist = false;
        assert_eq!(life.deadline(0), Some(at(3600)));
    }
}
