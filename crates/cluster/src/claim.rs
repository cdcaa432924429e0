//! Taking a sandbox out of a pool. The API server's optimistic lock decides: of several writes to one
//! sandbox, one wins.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp as Time;
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use shoal_crds::kruise::names::{annotation, label};
use shoal_crds::kruise::{Claiming, Sandbox, SandboxSet, SandboxState};

use crate::identity::key;
use crate::watched::Watched;
use crate::{failure, record};

/// How many candidates one claim chooses from.
const CANDIDATES: usize = 100;

/// Claims on this replica. Two of them never choose the same sandbox.
pub(crate) struct Claims {
    client: Client,
    sandboxes: Arc<Watched<Sandbox>>,
    picked: Mutex<HashSet<String>>,
}

/// A sandbox that a claim on this replica tries to get.
struct Pick<'a> {
    picked: &'a Mutex<HashSet<String>>,
    uid: String,
}

impl Drop for Pick<'_> {
    fn drop(&mut self) {
        self.picked.lock().remove(&self.uid);
    }
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
            picked: Mutex::default(),
        }
    }

    /// Claims a waiting sandbox of a pool; `change` is more of the same write. None when no sandbox
    /// waits.
    ///
    /// # Errors
    /// When the API server refuses the write for another reason than that another one came first.
    pub(crate) async fn take(
        &self,
        set: &SandboxSet,
        claiming: &Claiming,
        change: impl Fn(&mut Sandbox),
    ) -> kube::Result<Option<Arc<Sandbox>>> {
        let (mut tried, mut retried) = (HashSet::new(), HashSet::new());
        while let Some((candidate, pick)) = self.pick(set, &tried) {
            let mut claimed = (*candidate).clone();
            claiming.claim(&mut claimed);
            change(&mut claimed);
            let (namespace, name) = key(&claimed.metadata);
            let api: Api<Sandbox> = Api::namespaced(self.client.clone(), &namespace);
            match api.replace(&name, &PostParams::default(), &claimed).await {
                Ok(claimed) => return Ok(Some(self.sandboxes.put(claimed))),
                // Another claim, or only a change of its status: the newest state says which.
                Err(error) if failure::is_conflict(&error) => {
                    if let Some(newest) = api.get_opt(&name).await? {
                        let newest = self.sandboxes.put(newest);
                        if retried.insert(pick.uid.clone()) && is_free(&newest, Time::now()) {
                            continue;
                        }
                    }
                }
                Err(error) if failure::is_gone(&error) => {}
                Err(error) => return Err(error),
            }
            tried.insert(pick.uid.clone());
        }
        Ok(None)
    }

    /// A sandbox that waits: of the current revision if there is one, else of another.
    fn pick(&self, set: &SandboxSet, tried: &HashSet<String>) -> Option<(Arc<Sandbox>, Pick<'_>)> {
        let (namespace, name) = key(&set.metadata);
        let now = Time::now();
        let mut waiting = self.sandboxes.find_all(&pool_index(&namespace, &name));
        waiting.retain(|sandbox| is_free(sandbox, now));
        let revision = set.status.as_ref().map(|status| &status.update_revision);
        let (mut chosen, mut rest): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|sandbox| labelled(sandbox, label::TEMPLATE_HASH) == revision);
        // Replicas that begin at different sandboxes rarely meet.
        rotate(&mut chosen);
        rotate(&mut rest);
        chosen.append(&mut rest);
        chosen.truncate(CANDIDATES);
        let mut picked = self.picked.lock();
        chosen.into_iter().find_map(|sandbox| {
            let uid = sandbox.metadata.uid.clone()?;
            if tried.contains(&uid) || !picked.insert(uid.clone()) {
                return None;
            }
            let picked = &self.picked;
            Some((sandbox, Pick { picked, uid }))
        })
    }
}

/// Whether a sandbox can be claimed.
fn is_free(sandbox: &Sandbox, now: Time) -> bool {
    SandboxState::of(sandbox, now).0 == SandboxState::Available
        && record::annotated(sandbox, annotation::LOCK).is_none()
        && record::address(sandbox).is_some()
}

fn labelled<'a>(sandbox: &'a Sandbox, key: &str) -> Option<&'a String> {
    sandbox.metadata.labels.as_ref()?.get(key)
}

fn rotate<T>(list: &mut [T]) {
    if list.is_empty() {
        return;
    }
    let mut random = [0; 8];
    // Without randomness replicas meet more often, and no more.
    let _ = getrandom::fill(&mut random);
    let start = usize::from_le_bytes(random) % list.len();
    list.rotate_left(start);
}
