//! How long members that are not ready have been known.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_crds::v1beta1::Sandbox;

/// How often entries that are not read any more are removed, and after how long.
const PRUNE: Duration = Duration::from_secs(60);

/// When this process first saw each member that is not ready, by UID. Clocks of the operator and of the API server
/// differ, and they jump: a member would be too old as soon as it is created.
#[derive(Default)]
pub(crate) struct Ages(Mutex<State>);

#[derive(Default)]
struct State {
    /// When each member was first seen, and when it was last read.
    seen: HashMap<String, (Instant, Instant)>,
    pruned: Option<Instant>,
}

impl Ages {
    /// How long the process has known a member. `keep` is the longest time between two questions about one.
    pub(super) fn of(&self, member: &Sandbox, keep: Duration, now: Instant) -> Duration {
        let uid = member.metadata.uid.clone().unwrap_or_default();
        let mut state = self.0.lock();
        let since = |at: Instant| now.saturating_duration_since(at);
        if state.pruned.is_none_or(|pruned| since(pruned) >= PRUNE) {
            state.pruned = Some(now);
            let keep = keep + 2 * PRUNE;
            state.seen.retain(|_, (_, asked)| since(*asked) < keep);
        }
        let (first, asked) = state.seen.entry(uid).or_insert((now, now));
        *asked = now;
        since(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_begins_when_the_member_is_first_seen() {
        let (ages, now) = (Ages::default(), Instant::now());
        let mut member = Sandbox::default();
        member.metadata.uid = Some("u".to_owned());
        let (second, keep) = (Duration::from_secs(1), Duration::from_secs(300));
        assert_eq!(ages.of(&member, keep, now), Duration::ZERO);
        assert_eq!(ages.of(&member, keep, now + 7 * second), 7 * second);
        member.metadata.uid = Some("other".to_owned());
        assert_eq!(ages.of(&member, keep, now + 400 * second), Duration::ZERO);
        assert_eq!(ages.0.lock().seen.len(), 2);
        // The first is not asked about any more.
        ages.of(&member, keep, now + 500 * second);
        assert_eq!(ages.0.lock().seen.len(), 1);
    }
}
