//! The metrics and the history of pools. Dashboards depend on the names.

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

use super::*;

/// A recorder of metrics: name and labels, and the value.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, f64>>>);

/// One metric.
#[derive(Debug)]
struct One(Seen, String);

impl Seen {
    fn note(&self, kind: &str, key: &Key) -> Arc<One> {
        let labels = key.labels().map(|l| format!("{}={}", l.key(), l.value()));
        let labels: Vec<String> = labels.collect();
        let line = format!("{kind} {} {}", key.name(), labels.join(","));
        Arc::new(One(self.clone(), line))
    }

    /// The metrics of pools.
    fn of_pools(&self) -> BTreeMap<String, f64> {
        let mut all = self.0.lock().clone();
        all.retain(|line, _| line.contains(" shoal_pool_"));
        all
    }
}

impl One {
    fn change(&self, to: impl Fn(f64) -> f64) {
        let mut all = self.0.0.lock();
        let value = all.entry(self.1.clone()).or_default();
        *value = to(*value);
    }
}

#[expect(clippy::cast_precision_loss, reason = "few are counted")]
impl CounterFn for One {
    fn increment(&self, by: u64) {
        self.change(|before| before + by as f64);
    }

    fn absolute(&self, value: u64) {
        self.change(|_| value as f64);
    }
}

impl GaugeFn for One {
    fn increment(&self, by: f64) {
        self.change(|before| before + by);
    }

    fn decrement(&self, by: f64) {
        self.change(|before| before - by);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for One {
    /// How often is counted.
    fn record(&self, _: f64) {
        self.change(|before| before + 1.0);
    }
}

impl Recorder for Seen {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.note("counter", key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.note("gauge", key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.note("histogram", key))
    }
}

#[tokio::test]
async fn what_is_counted_of_pools_is_called_as_it_was() {
    let seen = Seen::default();
    // All of the engine runs on the thread of this test.
    let _counting = metrics::set_default_local_recorder(&seen);
    let fixture = Pooled::each_warmed_up(2).await;
    assert_eq!(origin(&*fixture.create().await), StartKind::Pooled);
    fixture.full(2).await;
    // No other gets ready: two are handed out, and one is missed.
    fixture.guest.endless.lock().insert("warm up".to_owned());
    for _ in 0..3 {
        fixture.create().await;
    }
    fixture.engine.count_states();
    let expected = [
        ("counter shoal_pool_claims_total template=warm", 3.0),
        ("counter shoal_pool_misses_total template=warm", 1.0),
        ("gauge shoal_pool_parked template=warm", 0.0),
        ("gauge shoal_pool_ready template=warm", 0.0),
        ("gauge shoal_pool_size template=warm", 2.0),
        ("histogram shoal_pool_claim_seconds template=warm", 3.0),
    ];
    let expected = expected.map(|(line, value)| (line.to_owned(), value));
    assert_eq!(seen.of_pools(), BTreeMap::from(expected));
}

#[tokio::test]
async fn of_a_pool_that_has_gone_nothing_is_counted_any_more() {
    let seen = Seen::default();
    let _counting = metrics::set_default_local_recorder(&seen);
    let fixture = Pooled::filled(3).await;
    let gauges = || {
        fixture.engine.count_states();
        ["ready", "size"].map(|of| seen.of_pools()[&format!("gauge shoal_pool_{of} template=warm")])
    };
    assert_eq!(gauges(), [3.0, 3.0]);
    fixture.put(json!([])).await;
    assert_eq!(gauges(), [0.0, 0.0]);
}

#[tokio::test]
async fn the_last_hours_of_a_pool_are_shown_to_its_operator() {
    let fixture = Pooled::filled(2).await;
    let history = || fixture.engine.pool_history("warm").unwrap();
    assert_eq!(fixture.view().claim_times, None);
    let now = *history().last().unwrap();
    assert_eq!((now.size, now.ready, now.parked), (2, 2, 0));
    fixture.create().await;
    fixture.full(2).await;
    assert!(fixture.view().claim_times.is_some());
    for minute in 1..=3 {
        fixture.clock.advance(Duration::from_secs(60));
        // The first sample is of the first minute, and the last one of this moment.
        let taken =
            |fixture: &Pooled| fixture.engine.pool_history("warm").unwrap().len() == minute + 2;
        fixture.until("sampled", taken).await;
    }
    let history = history();
    assert!(history.is_sorted_by_key(|sample| sample.at));
    assert_eq!((history[0].claimed, history[1].claimed), (0, 1));
    assert!(fixture.engine.pool_history("other").is_none());
}
