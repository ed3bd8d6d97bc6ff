//! Metrics of an engine, through the facade of the crate [`metrics`](https://docs.rs/metrics): the host chooses the recorder.
//!
//! An engine without [`Engine::…metrics`](crate::flow::EngineBuilder::metrics) records nothing. [`all`] lists the metrics; the
//! guide `docs/metrics.md` explains them, with a dashboard and alerts.
//!
//! ```
//! use counterfoil::Engine;
//! use counterfoil::metrics::Metrics;
//!
//! // Into the recorder that the program has installed for all its crates.
//! let engine = Engine::in_memory().metrics(Metrics::global());
//! ```

mod bounded;
#[cfg(feature = "prometheus")]
mod prometheus;
mod series;
pub(crate) mod table;

use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

#[cfg(feature = "prometheus")]
pub use prometheus::Prometheus;
pub(crate) use series::Meter;

/// A metric of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name, as exporters show it.
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: Kind,
    /// The names of the labels. `tenant` comes to them if [wanted](Metrics::by_tenant) and if the metric belongs to tenants.
    pub labels: &'static [&'static str],
    /// The meaning, as a sentence.
    pub meaning: &'static str,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A value that is read at intervals.
    Gauge,
    /// A histogram of durations in seconds.
    Seconds,
    /// A histogram of numbers of things.
    Sizes,
}

impl Kind {
    /// The upper bounds of a histogram's buckets; empty for other kinds.
    pub const fn buckets(self) -> &'static [f64] {
        match self {
            Self::Counter | Self::Gauge => &[],
            // A call takes milliseconds, and a run may take days.
            Self::Seconds => &[
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
                300.0, 1800.0, 3600.0, 21600.0, 86400.0,
            ],
            Self::Sizes => &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0],
        }
    }
}

/// All metrics.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    table::ALL.iter().copied()
}

/// The pause between two readings of the gauges, unless another one is set.
const EVERY: Duration = Duration::from_secs(15);

/// The metrics of an engine: the recorder that they go to, and how they are labelled.
#[derive(Clone)]
#[must_use = "metrics are recorded once an engine has them"]
pub struct Metrics {
    recorder: Arc<dyn Recorder + Send + Sync>,
    by_tenant: bool,
    every: Duration,
    /// Called when the gauges were read, for a recorder that has to be kept from growing.
    upkeep: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { by_tenant, every, .. } = self;
        f.debug_struct("Metrics").field("by_tenant", by_tenant).field("every", every).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics that go to the recorder which the program has installed for all its crates. It must be installed before the engine
    /// starts: what is recorded earlier is lost.
    pub fn global() -> Self {
        Self::to(Global)
    }

    /// Metrics that go to a recorder of their own.
    pub fn to(recorder: impl Recorder + Send + Sync + 'static) -> Self {
        Self { recorder: Arc::new(recorder), by_tenant: false, every: EVERY, upkeep: None }
    }

    /// Adds the label `tenant` to what belongs to a tenant. Default: off, because it multiplies the number of series. The first
    /// two hundred tenants have a label of their own, and all others share `other`.
    pub const fn by_tenant(mut self) -> Self {
        self.by_tenant = true;
        self
    }

    /// Sets the pause between two readings of the gauges. Default: 15 s.
    pub const fn every(mut self, pause: Duration) -> Self {
        self.every = pause;
        self
    }
}

/// The recorder that is installed for the whole program, asked anew for each series.
struct Global;

impl Recorder for Global {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        ::metrics::with_recorder(|to| to.describe_counter(key, unit, description));
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        ::metrics::with_recorder(|to| to.describe_gauge(key, unit, description));
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        ::metrics::with_recorder(|to| to.describe_histogram(key, unit, description));
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        ::metrics::with_recorder(|to| to.register_counter(key, metadata))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        ::metrics::with_recorder(|to| to.register_gauge(key, metadata))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        ::metrics::with_recorder(|to| to.register_histogram(key, metadata))
    }
}
