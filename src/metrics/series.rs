//! The series of an engine: each is registered with the recorder when it is first recorded, and kept.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};

use super::bounded::Bounded;
use super::{Kind, Metric, Metrics, table};
use crate::id::Tenant;
use crate::panics::{called, quietly};

static METADATA: Metadata<'static> = Metadata::new("counterfoil", Level::INFO, Some("counterfoil"));

/// The metrics of an engine, or nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Option<Arc<Series>>);

impl Meter {
    /// The meter of an engine without metrics.
    pub(crate) const fn off() -> Self {
        Self(None)
    }

    /// A meter of an engine with these tools.
    pub(crate) fn of<'t>(metrics: Option<Metrics>, tools: impl Iterator<Item = &'t str>) -> Self {
        Self(metrics.map(|metrics| Arc::new(Series::of(metrics, tools))))
    }

    /// The series, if the engine has metrics.
    pub(crate) fn on(&self) -> Option<&Series> {
        self.0.as_deref()
    }
}

/// The series of an engine, by metric and labels.
pub(crate) struct Series {
    metrics: Metrics,
    hasher: RandomState,
    /// The handles by the hash of their metric and labels. Several of one hash are told apart by comparison.
    handles: RwLock<HashMap<u64, Vec<Handle>>>,
    values: Mutex<Bounded>,
    /// True once the recorder has panicked: that is told once.
    has_panicked: AtomicBool,
}

struct Handle {
    name: &'static str,
    labels: Vec<String>,
    records: Records,
}

#[derive(Clone)]
enum Records {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl std::fmt::Debug for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Series").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

impl Series {
    fn of<'t>(metrics: Metrics, tools: impl Iterator<Item = &'t str>) -> Self {
        let (hasher, handles, values) = (RandomState::new(), RwLock::default(), Mutex::default());
        let series = Self { metrics, hasher, handles, values, has_panicked: AtomicBool::new(false) };
        super::all().for_each(|metric| series.describe(metric));
        // A counter that begins with its first event hides that event from whoever asks for its increase.
        let begin = |labels: &[&str], values: &[&str]| {
            let counts = |metric: &&&Metric| metric.kind == Kind::Counter && metric.labels == labels;
            table::ALL.iter().filter(counts).for_each(|metric| series.count(metric, None, values, 0));
        };
        begin(&[], &[]);
        tools.for_each(|tool| begin(&["tool"], &[tool]));
        series
    }

    fn describe(&self, metric: &Metric) {
        let (name, meaning, to) = (metric.name.into(), metric.meaning.into(), &self.metrics.recorder);
        self.guarded(metric.name, || match metric.kind {
            Kind::Counter => to.describe_counter(name, Some(Unit::Count), meaning),
            Kind::Gauge => to.describe_gauge(name, None, meaning),
            Kind::Seconds => to.describe_histogram(name, Some(Unit::Seconds), meaning),
            Kind::Sizes => to.describe_histogram(name, Some(Unit::Count), meaning),
        });
    }

    /// Calls the recorder, which is the program's own code. A panic of it costs a number, and not the call or the run
    /// that the number is about.
    fn guarded(&self, metric: &str, work: impl FnOnce()) {
        let Err(panic) = called(work) else { return };
        if !self.has_panicked.swap(true, Ordering::Relaxed) {
            quietly(|| tracing::error!(metric, panic, "metrics recorder panicked"));
        }
    }

    /// The pause between two readings of the gauges.
    pub(crate) const fn every(&self) -> Duration {
        self.metrics.every
    }

    /// Gives the recorder the time to tidy up.
    pub(crate) fn upkeep(&self) {
        if let Some(upkeep) = &self.metrics.upkeep {
            self.guarded("upkeep", || upkeep());
        }
    }

    pub(crate) fn count(&self, metric: &'static Metric, tenant: Option<&Tenant>, labels: &[&str], n: u64) {
        self.record(metric, tenant, labels, |records| {
            if let Records::Counter(counter) = records {
                counter.increment(n);
            }
        });
    }

    pub(crate) fn observe(
        &self,
        metric: &'static Metric,
        tenant: Option<&Tenant>,
        labels: &[&str],
        value: f64,
    ) {
        self.record(metric, tenant, labels, |records| {
            if let Records::Histogram(histogram) = records {
                histogram.record(value);
            }
        });
    }

    pub(crate) fn set(&self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.record(metric, None, labels, |records| {
            if let Records::Gauge(gauge) = records {
                gauge.set(value);
            }
        });
    }

    /// Records into a series that is known already, or registers it first.
    fn record(
        &self,
        metric: &'static Metric,
        tenant: Option<&Tenant>,
        labels: &[&str],
        record: impl Fn(&Records),
    ) {
        self.guarded(metric.name, || self.unguarded(metric, tenant, labels, record));
    }

    fn unguarded(
        &self,
        metric: &'static Metric,
        tenant: Option<&Tenant>,
        labels: &[&str],
        record: impl Fn(&Records),
    ) {
        let tenant = tenant.filter(|_| self.metrics.by_tenant).map(Tenant::as_str);
        let is_known = self.with_known(metric, labels, tenant, &record);
        if !is_known {
            let values = self.bounded(metric, labels, tenant);
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            let (labels, tenant) = values.split_at(labels.len());
            let tenant = tenant.first().copied();
            if !self.with_known(metric, labels, tenant, &record) {
                record(&self.register(metric, labels, tenant));
            }
        }
    }

    fn with_known(
        &self,
        metric: &'static Metric,
        labels: &[&str],
        tenant: Option<&str>,
        record: impl Fn(&Records),
    ) -> bool {
        let hash = self.hasher.hash_one((metric.name, labels, tenant));
        let handles = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |handle: &&Handle| {
            handle.name == metric.name && handle.labels.iter().eq(labels.iter().copied().chain(tenant))
        };
        let known = handles.get(&hash).and_then(|handles| handles.iter().find(is_it));
        known.map(|handle| record(&handle.records)).is_some()
    }

    /// The values of the labels and of the tenant's label, each as far as there is room for it.
    fn bounded(&self, metric: &Metric, labels: &[&str], tenant: Option<&str>) -> Vec<String> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let named = metric.labels.iter().copied().zip(labels.iter().copied());
        let named = named.chain(tenant.map(|tenant| ("tenant", tenant)));
        named.map(|(label, value)| values.value(label, value).to_owned()).collect()
    }

    fn register(&self, metric: &'static Metric, labels: &[&str], tenant: Option<&str>) -> Records {
        let names = metric.labels.iter().copied().chain(tenant.map(|_| "tenant"));
        let values: Vec<_> = labels.iter().copied().chain(tenant).map(ToOwned::to_owned).collect();
        let key: Vec<_> = names.zip(&values).map(|(name, value)| Label::new(name, value.clone())).collect();
        let (key, to) = (Key::from_parts(metric.name, key), &self.metrics.recorder);
        let records = match metric.kind {
            Kind::Counter => Records::Counter(to.register_counter(&key, &METADATA)),
            Kind::Gauge => Records::Gauge(to.register_gauge(&key, &METADATA)),
            Kind::Seconds | Kind::Sizes => Records::Histogram(to.register_histogram(&key, &METADATA)),
        };
        let hash = self.hasher.hash_one((metric.name, labels, tenant));
        let handle = Handle { name: metric.name, labels: values, records: records.clone() };
        // Two threads may register one series. The recorder gives both the same one.
        self.handles.write().unwrap_or_else(PoisonError::into_inner).entry(hash).or_default().push(handle);
        records
    }
}
