//! Checkpoints that the node agent fetches from elsewhere.

use std::thread::sleep;
use std::time::{Duration, Instant};

use shoal_checkpoint::{CheckpointId, Fetch, Store, StoreError};

use crate::failure::Failure;

/// How long the agent has to begin.
const BEGIN: Duration = Duration::from_secs(10);

/// How long the creation of a sandbox waits at most. The kubelet gives it up after two minutes, and tries again.
const PATIENCE: Duration = Duration::from_secs(100);

/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until a checkpoint is on this node, or no fetch of it runs.
pub(crate) fn wait(store: &Store, namespace: &str, id: &CheckpointId) -> Result<(), Failure> {
    wait_for(store, namespace, id, [BEGIN, PATIENCE])
}

fn wait_for(
    store: &Store,
    namespace: &str,
    id: &CheckpointId,
    [begin, patience]: [Duration; 2],
) -> Result<(), Failure> {
    let told = |error: StoreError| Failure::Store {
        id: id.to_string(),
        error,
    };
    let not_fetched = |why: String| Failure::NotFetched {
        id: id.to_string(),
        why,
    };
    let since = Instant::now();
    while store.find(namespace, id.key()).map_err(told)?.is_none() {
        match store.fetch(id.key()).map_err(told)? {
            Fetch::Failed(why) => return Err(not_fetched(why)),
            Fetch::Running if since.elapsed() > patience => {
                return Err(not_fetched("it is still under way".to_owned()));
            }
            // The caller says that it is not there.
            Fetch::None if since.elapsed() > begin => return Ok(()),
            Fetch::Running | Fetch::None => sleep(LOOK),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use shoal_checkpoint::{Contents, Manifest};

    use super::*;

    const NO_TIME: [Duration; 2] = [Duration::ZERO; 2];

    #[test]
    fn a_checkpoint_that_is_fetched_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path());
        store.prepare().unwrap();
        let id = format!("{}-{}", "1".repeat(32), "2".repeat(24));
        let id: CheckpointId = id.parse().unwrap();
        let now = || wait_for(&store, "ns", &id, NO_TIME);
        assert!(now().is_ok(), "it is not being fetched");
        let running = store.begin_fetch(id.key()).unwrap();
        assert!(now().unwrap_err().to_string().contains("under way"));
        running.fail("the bucket is away").unwrap();
        let failed = now().unwrap_err().to_string();
        assert!(failed.contains("the bucket is away"), "{failed}");

        running.begin().unwrap();
        let staged = store.stage(id.key()).unwrap().keep();
        let writer = store.clone();
        let key = id.key().clone();
        let published = std::thread::spawn(move || {
            let [namespace, pod, uid] = ["ns", "pod", "uid"].map(str::to_owned);
            let manifest = Manifest::new(namespace, pod, uid, Contents::Files);
            let id = writer.staged(&key, staged).publish(manifest).unwrap();
            drop(running);
            id
        });
        wait_for(&store, "ns", &id, [Duration::from_secs(60); 2]).unwrap();
        assert_eq!(published.join().unwrap().key(), id.key());
    }
}
