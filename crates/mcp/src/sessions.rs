//! All sessions: who may use which, and how many a team has.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::auth::Principal;
use shoal_core::id::TeamId;
use tokio::sync::watch;

use crate::session::Session;

/// All sessions.
pub(crate) struct Sessions {
    per_team: usize,
    open: Mutex<HashMap<Arc<str>, Arc<Session>>>,
    /// Places by team, of sessions that are open, begin or end.
    places: Mutex<HashMap<TeamId, usize>>,
    /// All of them.
    count: watch::Sender<usize>,
}

/// A team has as many sessions as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany(pub(crate) usize);

/// A session's place among those of its team, until it is dropped.
pub(crate) struct Place {
    sessions: Arc<Sessions>,
    team: TeamId,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.sessions.places.lock();
        if let Some(count) = places.get_mut(&self.team) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.team);
            }
        }
        self.sessions.count.send_modify(|count| *count -= 1);
    }
}

impl Sessions {
    pub(crate) fn new(per_team: usize) -> Self {
        Self {
            per_team,
            open: Mutex::default(),
            places: Mutex::default(),
            count: watch::Sender::new(0),
        }
    }

    /// A place for a new session of the caller's team.
    pub(crate) fn reserve(self: &Arc<Self>, by: &Principal) -> Result<Place, TooMany> {
        let mut places = self.places.lock();
        let count = places.entry(by.team).or_default();
        if *count >= self.per_team {
            return Err(TooMany(self.per_team));
        }
        *count += 1;
        self.count.send_modify(|count| *count += 1);
        Ok(Place {
            sessions: self.clone(),
            team: by.team,
        })
    }

    /// Makes a session known under its id.
    pub(crate) fn open(&self, id: Arc<str>, session: Arc<Session>) {
        self.open.lock().insert(id, session);
    }

    /// The session with this id, if it belongs to the caller's team.
    pub(crate) fn find(&self, by: &Principal, id: &str) -> Option<Arc<Session>> {
        let found = self.open.lock().get(id).cloned();
        found.filter(|session| session.opener().team == by.team && !session.ended().is_cancelled())
    }

    pub(crate) fn remove(&self, id: &str) {
        self.open.lock().remove(id);
    }

    /// Waits until no session is left.
    pub(crate) async fn drained(&self) {
        let mut count = self.count.subscribe();
        // The sender lives as long as `self`.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_core::id::KeyId;

    use super::*;

    fn principal(team: u8) -> Principal {
        Principal {
            team: TeamId::from_entropy([team; 16]),
            slug: format!("team-{team}").parse().unwrap(),
            key: KeyId::from_entropy([team; 16]),
            admin: false,
        }
    }

    fn session(sessions: &Arc<Sessions>, team: u8, idle: Duration) -> Arc<Session> {
        let place = sessions.reserve(&principal(team)).ok().unwrap();
        Arc::new(Session::new(principal(team), None, idle, place))
    }

    #[test]
    fn a_session_is_found_by_its_own_team_until_it_ends() {
        let sessions = Arc::new(Sessions::new(1));
        let mine = session(&sessions, 1, Duration::MAX);
        sessions.open("s".into(), mine.clone());
        assert!(sessions.find(&principal(1), "s").is_some());
        assert!(sessions.find(&principal(2), "s").is_none());
        assert!(sessions.find(&principal(1), "t").is_none());
        mine.ended().cancel();
        assert!(sessions.find(&principal(1), "s").is_none());
    }

    #[tokio::test]
    async fn a_team_has_a_number_of_sessions_and_each_gives_its_place_back() {
        let sessions = Arc::new(Sessions::new(1));
        let first = session(&sessions, 1, Duration::MAX);
        assert_eq!(sessions.reserve(&principal(1)).err(), Some(TooMany(1)));
        drop(session(&sessions, 2, Duration::MAX));
        drop(first);
        sessions.drained().await;
        assert!(sessions.reserve(&principal(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_idle_when_no_call_is_under_way_and_none_came_for_a_time() {
        let sessions = Arc::new(Sessions::new(1));
        let session = session(&sessions, 1, Duration::from_secs(60));
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let busy = session.begin();
        let waited = tokio::time::timeout(minutes(10), session.idle()).await;
        assert!(waited.is_err());
        drop(busy);
        let before = tokio::time::Instant::now();
        session.idle().await;
        assert_eq!(before.elapsed(), minutes(1));
    }
}
