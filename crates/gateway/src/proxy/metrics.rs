//! The metrics of forwarded requests.

use http::Response;
use metrics::Counter;
use parking_lot::Mutex;
use shoal_core::template::RuntimeName;

use super::GatewayBody;

/// Counters of responses, by status class and runtime: a handful. Looking one up by its labels takes longer than the
/// rest of the counting.
#[derive(Default)]
pub(super) struct Counts(Mutex<Vec<Count>>);

struct Count {
    class: u16,
    runtime: Option<RuntimeName>,
    counter: Counter,
}

impl Counts {
    /// Counts a response of a sandbox with this runtime; none if the request reached no sandbox.
    pub(super) fn add(&self, answer: &Response<GatewayBody>, runtime: Option<&RuntimeName>) {
        let class = answer.status().as_u16() / 100;
        let mut counts = self.0.lock();
        let mut known = counts.iter();
        let known = known.find(|count| count.class == class && count.runtime.as_ref() == runtime);
        if let Some(known) = known {
            return known.counter.increment(1);
        }
        let count = Count::new(class, runtime);
        count.counter.increment(1);
        counts.push(count);
    }
}

impl Count {
    fn new(class: u16, runtime: Option<&RuntimeName>) -> Self {
        let name = runtime.map_or_else(|| "none".to_owned(), ToString::to_string);
        let labels = [("status", format!("{class}xx")), ("runtime", name)];
        Self {
            class,
            runtime: runtime.cloned(),
            counter: ::metrics::counter!("shoal_gateway_requests_total", &labels),
        }
    }
}
