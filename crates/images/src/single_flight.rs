//! Single flight: concurrent calls with the same key share one operation.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use shoal_core::image::{Progress, ProgressSink};

use super::fault::Fault;

type Outcome<V> = Result<V, Fault>;
type Work<V> = BoxFuture<'static, Outcome<V>>;

/// Shares operations that are in progress.
///
/// The first caller starts the operation; later callers wait for it. It runs while any caller
/// waits, and is cancelled when the last one has gone: dropping the future cancels a download.
///
/// A failure is returned to the caller that started the operation. The other callers start again,
/// because the fault may be specific to the first one, like wrong credentials. Every failure ends
/// at least one call, so this terminates.
pub(crate) struct SingleFlight<K, V> {
    under_way: Mutex<HashMap<K, Flight<V>>>,
}

struct Flight<V> {
    work: WeakShared<Work<V>>,
    audience: Audience,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self {
            under_way: Mutex::new(HashMap::new()),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Waits for the operation on `key`, and starts it if none is running. `sink` receives its
    /// progress.
    pub(crate) async fn join(
        &self,
        key: K,
        sink: Arc<dyn ProgressSink>,
        begin: impl Fn(Audience) -> Work<V>,
    ) -> Outcome<V> {
        loop {
            let (shared, first) = self.board(&key, &sink, &begin);
            let outcome = shared.clone().await;
            self.land(&key, &shared);
            if outcome.is_ok() || first {
                return outcome;
            }
        }
    }

    fn board(
        &self,
        key: &K,
        sink: &Arc<dyn ProgressSink>,
        begin: &impl Fn(Audience) -> Work<V>,
    ) -> (Shared<Work<V>>, bool) {
        let mut under_way = self.under_way.lock();
        if let Some(flight) = under_way.get(key) {
            // Operations that have ended or were cancelled are not joined.
            let live = flight.work.upgrade().filter(|work| work.peek().is_none());
            if let Some(work) = live {
                flight.audience.add(Arc::clone(sink));
                return (work, false);
            }
        }
        under_way.retain(|_, flight| flight.work.upgrade().is_some());
        let audience = Audience::default();
        audience.add(Arc::clone(sink));
        let shared = begin(audience.clone()).shared();
        if let Some(work) = shared.downgrade() {
            under_way.insert(key.clone(), Flight { work, audience });
        }
        (shared, true)
    }

    /// Removes the operation, unless another one has started since.
    fn land(&self, key: &K, shared: &Shared<Work<V>>) {
        let mut under_way = self.under_way.lock();
        let mine = under_way
            .get(key)
            .and_then(|flight| flight.work.upgrade())
            .is_some_and(|other| other.ptr_eq(shared));
        if mine {
            under_way.remove(key);
        }
    }
}

/// The progress sinks of a shared operation.
#[derive(Default, Clone)]
pub(crate) struct Audience {
    sinks: Arc<Mutex<Vec<Arc<dyn ProgressSink>>>>,
}

impl Audience {
    /// Adds a sink for further progress.
    pub(crate) fn add(&self, sink: Arc<dyn ProgressSink>) {
        self.sinks.lock().push(sink);
    }
}

impl ProgressSink for Audience {
    fn report(&self, progress: Progress) {
        for sink in self.sinks.lock().iter() {
            sink.report(progress.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join3;
    use shoal_core::image::NoProgress;
    use tokio::sync::oneshot;

    fn quiet() -> Arc<dyn ProgressSink> {
        Arc::new(NoProgress)
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<u64>>);

    impl ProgressSink for Heard {
        fn report(&self, progress: Progress) {
            self.0.lock().push(progress.done);
        }
    }

    #[tokio::test]
    async fn callers_with_one_key_share_the_work_and_its_progress() {
        let flights = SingleFlight::<u8, usize>::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let begin = |audience: Audience| {
            let begun = Arc::clone(&begun);
            async move {
                tokio::task::yield_now().await;
                audience.report(Progress {
                    step: "x".into(),
                    done: 7,
                    total: None,
                });
                Ok(begun.fetch_add(1, Ordering::SeqCst))
            }
            .boxed()
        };
        let late = Arc::new(Heard::default());
        let (one, two, other) = join3(
            flights.join(1, quiet(), begin),
            flights.join(1, late.clone(), begin),
            flights.join(2, quiet(), begin),
        )
        .await;
        assert_eq!((one.unwrap(), two.unwrap(), other.unwrap()), (0, 0, 1));
        assert_eq!(*late.0.lock(), [7]);
        assert_eq!(flights.join(1, quiet(), begin).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_fault_fails_only_the_call_that_started_the_work() {
        let flights = SingleFlight::<u8, usize>::default();
        let begun = AtomicUsize::new(0);
        let begin = |_: Audience| {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::task::yield_now().await;
                if number == 0 {
                    Err(Fault::NotFound)
                } else {
                    Ok(number)
                }
            }
            .boxed()
        };
        let (first, second, third) = join3(
            flights.join(1, quiet(), begin),
            flights.join(1, quiet(), begin),
            flights.join(1, quiet(), begin),
        )
        .await;
        assert!(matches!(first, Err(Fault::NotFound)));
        assert_eq!((second.unwrap(), third.unwrap()), (1, 1));
    }

    #[tokio::test]
    async fn work_without_waiting_callers_is_cancelled() {
        let flights = Arc::new(SingleFlight::<u8, ()>::default());
        let (alive, mut given_up) = oneshot::channel::<()>();
        let alive = Arc::new(Mutex::new(Some(alive)));
        let caller = tokio::spawn({
            let flights = Arc::clone(&flights);
            async move {
                let begin = |_: Audience| {
                    let alive = alive.lock().take();
                    async move {
                        std::future::pending::<()>().await;
                        drop(alive);
                        Ok(())
                    }
                    .boxed()
                };
                flights.join(1, quiet(), begin).await
            }
        });
        tokio::task::yield_now().await;
        assert!(given_up.try_recv().is_err());
        caller.abort();
        assert!(given_up.await.is_err());
        flights
            .join(1, quiet(), |_| async { Ok(()) }.boxed())
            .await
            .unwrap();
    }
}
