//! A recorder in the hands of the test. It keeps the value of each series, and a test waits until a series is as it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use counterfoil::metrics::Metrics;
use counterfoil::types::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tokio::sync::watch;

/// The values by series, such as `counterfoil_runs_total{workflow=order,event=started}`: the number of a counter, the last
/// value of a gauge, the number of a histogram's values.
type Values = BTreeMap<String, f64>;

#[derive(Clone, Default)]
pub(super) struct Recorded(Arc<watch::Sender<Values>>, Arc<AtomicBool>);

impl Recorded {
    /// Metrics that go here, with gauges that are read all the time.
    pub(super) fn metrics(&self) -> Metrics {
        Metrics::to(self.clone()).every(std::time::Duration::from_millis(5))
    }

    /// From now on each number that comes panics, or none does.
    pub(super) fn panics(&self, panics: bool) {
        self.1.store(panics, Ordering::SeqCst);
    }

    fn burn(&self) {
        assert!(!self.1.load(Ordering::SeqCst), "a panic that was asked for");
    }

    /// The value of a series.
    pub(super) fn value(&self, series: &str) -> Option<f64> {
        self.0.borrow().get(series).copied()
    }

    /// All series of a metric.
    pub(super) fn series(&self, metric: &str) -> Vec<String> {
        let of = |series: &&String| series.split('{').next() == Some(metric);
        self.0.borrow().keys().filter(of).cloned().collect()
    }

    /// The values of these series are at least so much.
    #[track_caller]
    pub(super) fn shows(&self, expected: &[(&str, f64)]) {
        for (series, value) in expected {
            assert_eq!(self.value(series), Some(*value), "{series} in {:#?}", self.0.borrow());
        }
    }

    /// Waits until a series has a value for which this holds.
    #[allow(clippy::disallowed_methods, reason = "a watchdog for tests that hang, not a synchronisation")]
    pub(super) async fn until(&self, series: &str, holds: impl Fn(f64) -> bool) {
        let mut values = self.0.subscribe();
        let come = values.wait_for(|values| values.get(series).is_some_and(|value| holds(*value)));
        let come = tokio::time::timeout(std::time::Duration::from_secs(30), come).await.map(drop);
        assert!(come.is_ok(), "{series} in {:#?}", self.0.borrow());
    }

    fn of(&self, key: &Key) -> Arc<Series> {
        self.burn();
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        Arc::new(Series { name: format!("{}{labels}", key.name()), all: self.clone() })
    }
}

struct Series {
    name: String,
    all: Recorded,
}

impl Series {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        self.all.burn();
        self.all.0.send_modify(|values| change(values.entry(self.name.clone()).or_default()));
    }
}

#[allow(clippy::cast_precision_loss, reason = "tests count to ten")]
impl CounterFn for Series {
    fn increment(&self, n: u64) {
        self.change(|value| *value += n as f64);
    }

    fn absolute(&self, n: u64) {
        self.change(|value| *value = n as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, by: f64) {
        self.change(|value| *value += by);
    }

    fn decrement(&self, by: f64) {
        self.change(|value| *value -= by);
    }

    fn set(&self, to: f64) {
        self.change(|value| *value = to);
    }
}

impl HistogramFn for Series {
    fn record(&self, _: f64) {
        self.change(|values| *values += 1.0);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.of(key))
    }
}
