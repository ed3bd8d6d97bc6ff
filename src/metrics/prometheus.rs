//! A recorder whose content is the text that Prometheus scrapes. It listens nowhere: the host serves the text.

use std::sync::Arc;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::Metrics;

/// A recorder for Prometheus, and the text of `/metrics`.
///
/// ```
/// use counterfoil::Engine;
/// use counterfoil::metrics::Prometheus;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let prometheus = Prometheus::default();
/// let engine = Engine::in_memory().metrics(prometheus.metrics()).start().await?;
/// // In the handler of `GET /metrics`, with the content type `Prometheus::CONTENT_TYPE`:
/// let text = prometheus.render();
/// # assert!(text.is_empty() || text.contains("counterfoil_"));
/// # engine.shutdown(std::time::Duration::ZERO).await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Prometheus {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prometheus").finish_non_exhaustive()
    }
}

impl Default for Prometheus {
    #[allow(clippy::expect_used, reason = "only empty buckets are refused")]
    fn default() -> Self {
        let mut builder = PrometheusBuilder::new();
        for metric in super::all().filter(|metric| !metric.kind.buckets().is_empty()) {
            let buckets = metric.kind.buckets();
            let with = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets);
            builder = with.expect("the buckets are not empty");
        }
        let recorder = Arc::new(builder.build_recorder());
        Self { handle: recorder.handle(), recorder }
    }
}

impl Prometheus {
    /// The content type of [`render`](Self::render).
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// The metrics of an engine that go to this recorder. Several engines may share it; their gauges then overwrite each other.
    pub fn metrics(&self) -> Metrics {
        let handle = self.handle.clone();
        let upkeep = Arc::new(move || handle.run_upkeep());
        Metrics { upkeep: Some(upkeep), ..Metrics::to(self.recorder.clone()) }
    }

    /// The present values as text, as Prometheus reads it.
    pub fn render(&self) -> String {
        self.handle.render()
    }
}
