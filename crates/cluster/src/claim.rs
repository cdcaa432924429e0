//! Taking a sandbox out of a pool. The API server's optimistic lock decides: of several writes to one
//! sandbox, one wins.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp as Time;
use kube::api::PostParams;
use kube::{Api, Client};
use shoal_crds::kruise::{Claiming, Pick, Picks, Sandbox, SandboxSet};

use crate::failure;
use crate::identity::key;
use crate::watched::Watched;

/// Claims on this replica. Two of them never choose the same sandbox.
pub(crate) struct Claims {
    client: Client,
    sandboxes: Arc<Watched<Sandbox>>,
    picks: Picks,
}

/// The other name of the waiting members of a pool.
pub(crate) fn pool_index(namespace: &str, set: &str) -> String {
    format!("pool/{namespace}/{set}")
}

impl Claims {
    /// Claims of these sandboxes.
    pub(crate) fn new(client: Client, sandboxes: Arc<Watched<Sandbox>>) -> Self {
        Self {
            client,
            sandboxes,
            picks: Picks::default(),
        }
    }

    /// Claims a waiting sandbox of a pool; `change` is more of the same write, and refuses one that does
    /// not fit. With a revision, the oldest of that revision; else any, of the newest revision if there is
    /// one. None when no sandbox waits.
    ///
    /// # Errors
    /// When the API server refuses the write for another reason than that another one came first.
    pub(crate) async fn take(
        &self,
        set: &SandboxSet,
        revision: Option<&str>,
        claiming: &Claiming,
        change: impl Fn(&mut Sandbox) -> bool,
    ) -> kube::Result<Option<Arc<Sandbox>>> {
        let (mut tried, mut retried) = (HashSet::new(), HashSet::new());
        while let Some((candidate, pick)) = self.pick(set, revision, &tried) {
            let mut claimed = (*candidate).clone();
            claiming.claim(&mut claimed);
            if !change(&mut claimed) {
                tried.insert(pick.uid().to_owned());
                continue;
            }
            let (namespace, name) = key(&claimed.metadata);
            let api: Api<Sandbox> = Api::namespaced(self.client.clone(), &namespace);
            match api.replace(&name, &PostParams::default(), &claimed).await {
                Ok(claimed) => return Ok(Some(self.sandboxes.put(claimed))),
                // Another claim, or only a change of its status: the newest state says which.
                Err(error) if failure::is_conflict(&error) => {
                    if let Some(newest) = api.get_opt(&name).await? {
                        let newest = self.sandboxes.put(newest);
                        if retried.insert(pick.uid().to_owned()) && newest.is_free(Time::now()) {
                            continue;
                        }
                    }
                }
                Err(error) if failure::is_gone(&error) => {}
                Err(error) => return Err(error),
            }
            tried.insert(pick.uid().to_owned());
        }
        Ok(None)
    }

    /// A sandbox that waits.
    fn pick(
        &self,
        set: &SandboxSet,
        revision: Option<&str>,
        tried: &HashSet<String>,
    ) -> Option<(Arc<Sandbox>, Pick<'_>)> {
        let (namespace, name) = key(&set.metadata);
        let members = self.sandboxes.find_all(&pool_index(&namespace, &name));
        if let Some(revision) = revision {
            return self
                .picks
                .pick_oldest(members, revision, tried, Time::now());
        }
        let revision = set.status.as_ref();
        let revision = revision.map_or("", |status| status.update_revision.as_str());
        self.picks.pick(members, revision, tried, Time::now())
    }
}
