//! Which waiting sandbox of a pool a claim tries to get. The E2B API and SandboxClaims share this choice; the API
//! server's optimistic lock decides between processes.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::names::{annotation, condition, label};
use super::sandbox::Sandbox;
use super::state::SandboxState;

/// How many sandboxes one claim chooses from.
const CANDIDATES: usize = 100;

/// The sandboxes that claims of this process try to get. Two of them never try the same one.
#[derive(Debug, Default)]
pub struct Picks(Mutex<HashSet<String>>);

/// A sandbox that one claim tries to get, until this is dropped.
#[derive(Debug)]
pub struct Pick<'a> {
    picks: &'a Picks,
    uid: String,
}

impl Pick<'_> {
    /// The UID of the sandbox.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

impl Drop for Pick<'_> {
    fn drop(&mut self) {
        self.picks.0.lock().remove(&self.uid);
    }
}

impl Picks {
    /// Picks one of the members of a pool that waits: of this revision if there is one, else of another. None
    /// when none of the first hundred is free for this claim; `tried` are UIDs that it had no luck with.
    pub fn pick(
        &self,
        mut members: Vec<Arc<Sandbox>>,
        revision: &str,
        tried: &HashSet<String>,
        now: Timestamp,
    ) -> Option<(Arc<Sandbox>, Pick<'_>)> {
        members.retain(|member| member.is_free(now));
        let is_newest =
            |member: &Arc<Sandbox>| member.label(label::TEMPLATE_HASH) == Some(revision);
        let (mut chosen, mut rest): (Vec<_>, Vec<_>) = members.into_iter().partition(is_newest);
        // Processes that begin at different sandboxes rarely meet.
        rotate(&mut chosen);
        rotate(&mut rest);
        chosen.append(&mut rest);
        chosen.truncate(CANDIDATES);
        self.first(chosen, tried)
    }

    /// Picks the member of a pool that has been ready longest, of this revision alone: those of another have other
    /// resources, or another network.
    pub fn pick_oldest(
        &self,
        mut members: Vec<Arc<Sandbox>>,
        revision: &str,
        tried: &HashSet<String>,
        now: Timestamp,
    ) -> Option<(Arc<Sandbox>, Pick<'_>)> {
        members.retain(|member| {
            member.is_free(now) && member.label(label::TEMPLATE_HASH) == Some(revision)
        });
        members.sort_by_key(|member| {
            let ready = member.condition(condition::READY);
            let ready = ready.map(|ready| ready.last_transition_time.0);
            let created = member.metadata.creation_timestamp.as_ref().map(|at| at.0);
            (ready, created, member.metadata.name.clone())
        });
        self.first(members, tried)
    }

    fn first(
        &self,
        members: Vec<Arc<Sandbox>>,
        tried: &HashSet<String>,
    ) -> Option<(Arc<Sandbox>, Pick<'_>)> {
        let mut picked = self.0.lock();
        members.into_iter().find_map(|sandbox| {
            let uid = sandbox.metadata.uid.clone()?;
            if tried.contains(&uid) || !picked.insert(uid.clone()) {
                return None;
            }
            Some((sandbox, Pick { picks: self, uid }))
        })
    }
}

impl Sandbox {
    /// Whether it can be claimed.
    #[must_use]
    pub fn is_free(&self, now: Timestamp) -> bool {
        SandboxState::of(self, now).0 == SandboxState::Available
            && self.annotation(annotation::LOCK).is_none()
            && self.address().is_some()
    }
}

fn rotate<T>(list: &mut [T]) {
    if list.is_empty() {
        return;
    }
    // Hash keys are the standard library's source of randomness.
    let random = RandomState::new().hash_one(list.len());
    let start = random % list.len() as u64;
    list.rotate_left(usize::try_from(start).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn member(uid: &str, revision: &str) -> Arc<Sandbox> {
        let owner = json!({
            "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "name": "p", "uid": "p",
            "controller": true,
        });
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "PodReady", "message": "", "lastTransitionTime": NOW,
        });
        let sandbox = json!({
            "metadata": {
                "name": uid, "namespace": "ns", "uid": uid, "ownerReferences": [owner],
                "labels": {label::TEMPLATE_HASH: revision},
            },
            "spec": {},
            "status": {"phase": "Running", "sandboxIp": "10.0.0.1", "conditions": [ready]},
        });
        Arc::new(serde_json::from_value(sandbox).unwrap())
    }

    fn uid_of(picked: Option<&(Arc<Sandbox>, Pick<'_>)>) -> Option<String> {
        picked.map(|(_, pick)| pick.uid().to_owned())
    }

    #[test]
    fn two_claims_never_pick_the_same_sandbox() {
        let (picks, now) = (Picks::default(), NOW.parse().unwrap());
        let members = vec![member("a", "new"), member("b", "new")];
        let pick = || picks.pick(members.clone(), "new", &HashSet::new(), now);
        let (one, other) = (pick(), pick());
        assert!(one.is_some() && other.is_some());
        assert_ne!(uid_of(one.as_ref()), uid_of(other.as_ref()));
        assert!(pick().is_none());
        let before = uid_of(one.as_ref());
        drop(one);
        assert_eq!(uid_of(pick().as_ref()), before);
    }

    #[test]
    fn the_newest_revision_comes_first() {
        let (picks, now) = (Picks::default(), NOW.parse().unwrap());
        let members = vec![member("a", "old"), member("b", "new"), member("c", "old")];
        let first = picks.pick(members.clone(), "new", &HashSet::new(), now);
        assert_eq!(uid_of(first.as_ref()).as_deref(), Some("b"));
        let tried = HashSet::from(["b".to_owned()]);
        let next = picks.pick(members, "new", &tried, now);
        assert_ne!(uid_of(next.as_ref()).as_deref(), Some("b"));
        assert!(next.is_some());
    }

    #[test]
    fn what_is_locked_or_has_no_address_is_not_free() {
        let now = NOW.parse().unwrap();
        let mut locked = (*member("a", "new")).clone();
        assert!(locked.is_free(now));
        let lock = [(annotation::LOCK.to_owned(), "me".to_owned())];
        locked.metadata.annotations = Some(lock.into());
        assert!(!locked.is_free(now));
        let mut elsewhere = (*member("a", "new")).clone();
        "127.0.0.1".clone_into(&mut elsewhere.status.get_or_insert_default().sandbox_ip);
        assert!(!elsewhere.is_free(now));
    }
}
