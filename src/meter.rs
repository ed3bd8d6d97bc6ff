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
        #[cfg(not(feature = "metrics"))]
        let _ = || { // never called: it keeps what is named in use
            let _ = (&$meter, &$n $(, $tenant)? $(, $label)*);
        };
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
        #[cfg(not(feature = "metrics"))]
        let _ = || {
            let _ = (&$meter, $value $(, $tenant)? $(, $label)*);
        };
    }};
}

/// Sets a gauge of the table: `gauge!(value; meter, METRIC, labels…)`.
#[cfg(feature = "metrics")]
macro_rules! gauge {
    ($value:expr; $meter:expr, $metric:ident $(, $label:expr)*) => {{
        if let Some(series) = $meter.on() {
            series.set(&crate::metrics::table::$metric, &[$($label),*], $value);
        }
    }};
}

/// The metrics of an engine without the feature `metrics`: nothing.
#[cfg(not(feature = "metrics"))]
#[derive(Clone, Debug)]
pub(crate) struct Meter;

#[cfg(not(feature = "metrics"))]
impl Meter {
    /// The meter of an engine without metrics.
    pub(crate) const fn off() -> Self {
        Self
    }
}
