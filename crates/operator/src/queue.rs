//! Runs the reconciles of one kind: one at a time for an object, several objects at once, with a growing
//! delay after failures.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use kube::runtime::controller::{Action, Config, applier};
use kube::runtime::reflector::{ObjectRef, Store};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::cache::{Key, Kind};
use crate::failure::Failure;
use crate::trace;

/// The delay after a first failure.
const SHORTEST_BACKOFF: Duration = Duration::from_millis(20);
/// The delay after many failures.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// Asks for reconciles of a kind. Equal requests that wait become one.
pub(crate) struct Queue<K: Kind>(UnboundedSender<ObjectRef<K>>);

impl<K: Kind> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Kind> Queue<K> {
    /// A queue and its end for [`run`].
    pub(crate) fn new() -> (Self, UnboundedReceiver<ObjectRef<K>>) {
        let (tx, rx) = unbounded_channel();
        (Self(tx), rx)
    }

    pub(crate) fn add(&self, namespace: &str, name: &str) {
        // It fails only while the process ends.
        let _ = self.0.send(ObjectRef::new(name).within(namespace));
    }

    pub(crate) fn add_key(&self, key: &Key) {
        self.add(&key.0, &key.1);
    }
}

/// So many failing objects are remembered without a look at when they failed last.
const MANY_FAILURES: usize = 1000;
/// An object that exists is tried again before this, so an older entry is of a deleted one.
const FORGET: Duration = Duration::from_secs(2 * LONGEST_BACKOFF.as_secs());

/// How often each object failed in a row, and when it failed last.
#[derive(Default)]
struct Failures(Mutex<HashMap<Key, (u32, Instant)>>);

impl Failures {
    fn count(&self, key: &Key) -> Duration {
        let mut failures = self.0.lock();
        if failures.len() >= MANY_FAILURES {
            failures.retain(|_, (_, last)| last.elapsed() < FORGET);
        }
        let now = Instant::now();
        let (count, last) = failures.entry(key.clone()).or_insert((0, now));
        *count = count.saturating_add(1);
        *last = now;
        backoff(*count)
    }

    fn clear(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// The delay after so many failures in a row.
fn backoff(failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    SHORTEST_BACKOFF.saturating_mul(factor).min(LONGEST_BACKOFF)
}

/// Reconciles until `stop`; reconciles under way end first.
pub(crate) async fn run<K, F, R>(
    controller: &'static str,
    store: Store<K>,
    requests: UnboundedReceiver<ObjectRef<K>>,
    workers: u16,
    stop: CancellationToken,
    reconcile: F,
) where
    K: Kind,
    F: Fn(Arc<K>) -> R + Send + 'static,
    R: Future<Output = Result<Action, Failure>> + Send + 'static,
{
    let failures = Arc::new(Failures::default());
    let requests = futures_util::stream::unfold(requests, |mut requests| async move {
        let request = requests.recv().await?;
        Some((Ok::<_, Infallible>(request), requests))
    });
    let requests = requests.take_until(stop.cancelled_owned()).boxed();
    let known = failures.clone();
    let results = applier(
        move |object: Arc<K>, _: Arc<()>| {
            let key = crate::cache::key(&*object);
            let span = trace::reconcile(controller, &*object);
            let run = tokio::spawn(reconcile(object).instrument(span));
            let known = known.clone();
            Box::pin(async move {
                let next = run.await??;
                known.clear(&key);
                Ok::<_, Failure>(next)
            })
        },
        move |object, failure, _| {
            let (namespace, name) = crate::cache::key(&*object);
            metrics::counter!("shoal_operator_reconcile_failures_total", "controller" => controller)
                .increment(1);
            let delay = failures.count(&(namespace.clone(), name.clone()));
            tracing::warn!(controller, namespace, name, %failure, ?delay, "reconcile failed");
            Action::requeue(delay)
        },
        Arc::new(()),
        store,
        requests,
        Config::default().concurrency(workers),
    );
    results
        .into_stream()
        .for_each(|_| {
            metrics::counter!("shoal_operator_reconciles_total", "controller" => controller)
                .increment(1);
            std::future::ready(())
        })
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_to_a_limit() {
        assert_eq!(backoff(1), SHORTEST_BACKOFF);
        assert_eq!(backoff(2), SHORTEST_BACKOFF * 2);
        assert_eq!(backoff(40), LONGEST_BACKOFF);
        assert_eq!(backoff(u32::MAX), LONGEST_BACKOFF);
    }

    #[test]
    fn failures_of_deleted_objects_are_forgotten() {
        let failures = Failures::default();
        let key = |name: String| ("ns".to_owned(), name);
        let Some(long_ago) = Instant::now().checked_sub(FORGET) else {
            return;
        };
        for n in 0..MANY_FAILURES {
            let old = key(n.to_string());
            failures.0.lock().insert(old, (9, long_ago));
        }
        assert_eq!(failures.count(&key("new".to_owned())), SHORTEST_BACKOFF);
        assert_eq!(failures.0.lock().len(), 1);
        assert_eq!(failures.count(&key("new".to_owned())), SHORTEST_BACKOFF * 2);
    }
}
