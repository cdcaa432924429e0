//! What is counted of pools, and how it is called: dashboards know it by that.

use std::collections::BTreeSet;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

use super::*;

/// Remembers what was counted of pools, and under which labels.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<String>>>);

impl Seen {
    fn note(&self, kind: &str, key: &Key) {
        if key.name().starts_with("shoal_pool") {
            let labels = key.labels().map(|l| format!("{}={}", l.key(), l.value()));
            let labels: Vec<String> = labels.collect();
            let line = format!("{kind} {} {}", key.name(), labels.join(","));
            self.0.lock().insert(line);
        }
    }
}

#[derive(Debug)]
struct Nothing;

impl CounterFn for Nothing {
    fn increment(&self, _: u64) {}
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Nothing {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, _: f64) {}
}

impl HistogramFn for Nothing {
    fn record(&self, _: f64) {}
}

impl Recorder for Seen {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.note("counter", key);
        Counter::from_arc(Arc::new(Nothing))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.note("gauge", key);
        Gauge::from_arc(Arc::new(Nothing))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.note("histogram", key);
        Histogram::from_arc(Arc::new(Nothing))
    }
}

#[tokio::test]
async fn what_is_counted_of_pools_is_called_as_it_was() {
    let seen = Seen::default();
    // All of the engine runs on the thread of this test.
    let _counting = metrics::set_default_local_recorder(&seen);
    let fixture = Pooled::each_warmed_up(1).await;
    assert_eq!(origin(&*fixture.create().await), Origin::Pooled);
    fixture.full(1).await;
    fixture.guest.endless.lock().insert("warm up".to_owned());
    fixture.create().await;
    fixture.create().await;
    fixture.engine.count_states();
    let expected = [
        "counter shoal_pool_claims_total template=warm",
        "counter shoal_pool_misses_total template=warm",
        "gauge shoal_pool_ready template=warm",
        "gauge shoal_pool_size template=warm",
        "histogram shoal_pool_claim_seconds template=warm",
    ];
    let seen = seen.0.lock().clone();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
}
