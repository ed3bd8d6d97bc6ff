//! Macros for metrics. They stand beside the event of the log about the same thing, so that both tell the same story.
//!
//! Without the feature `metrics` they are nothing. With it, but without a recorder, they cost one comparison.

#[cfg(feature = "metrics")]
pub(crate) use crate::metrics::Meter;

/// Adds 1 to a counter of the table: `count!(meter, METRIC of tenant, labels…)`. Without `of` for what belongs to no tenant.
/// `count!(by n; …)` adds n.
macro_rules! count {
    (by $n:expr; $meter:expr, $metric:ident $(of $tenant:expr)? $(, $label:expr)*) => {{
        #[cfg(feature = "metrics")]
        if let Some(series) = $meter.on() {
            series.count(&crate::metrics::table::$metric, None$(.or(Some($tenant)))?, &[$($label),*], $n);
        }
    }};
    ($($rest:tt)+) => { count!(by 1; $($rest)+) };
}

/// Adds a value to a histogram of the table: `observe!(value; meter, METRIC of tenant, labels…)`.
macro_rules! observe {
    ($value:expr; $meter:expr, $metric:ident $(of $tenant:expr)? $(, $label:expr)*) => {{
        #[cfg(feature = "metrics")]
        if let Some(series) = $meter.on() {
            series.observe(&crate::metrics::table::$metric, None$(.or(Some($tenant)))?, &[$($label),*], $value);
        }
    }};
}

/// Sets a gauge of the table: `gauge!(value; meter, METRIC, labels…)`.
macro_rules! gauge {
    ($value:expr; $meter:expr, $metric:ident $(, $label:expr)*) => {{
        #[cfg(feature = "metrics")]
        if let Some(series) = $meter.on() {
            series.set(&crate::metrics::table::$metric, &[$($label),*], $value);
        }
    }};
}

/// The metrics of an engine without the feature `metrics`: nothing.
#[cfg(not(feature = "metrics"))]
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter;
