//! The text for Prometheus.

use counterfoil::metrics::{Kind, Prometheus, all};

use crate::flow;
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};

#[test]
fn the_text_has_the_series_of_an_engine_with_their_meanings() {
    let (world, prometheus) = (World::new(), Prometheus::default());
    let code = flow!(world, |ctx, input: String| ctx.call::<Post>(input).await);
    let engine = world.engine().workflow("order", 1, code.clone()).metrics(prometheus.metrics());
    let process = Process::start(&world, engine);
    process.on(process.acme().run(code, "one".to_owned())).unwrap();
    let text = prometheus.render();
    for line in [
        "# TYPE counterfoil_runs_total counter",
        "# HELP counterfoil_runs_total Durable changes in the state of runs.",
        "counterfoil_runs_total{workflow=\"order\",event=\"succeeded\"} 1",
        "counterfoil_duplicates_total 0",
        "counterfoil_call_seconds_bucket{tool=\"post\",basis=\"answer\",le=\"86400\"} 1",
        "counterfoil_call_seconds_count{tool=\"post\",basis=\"answer\"} 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} in {text}");
    }
    process.shut_down();
}

/// A histogram without buckets of its own would be a summary, which cannot be added up over workers.
#[test]
fn each_histogram_has_buckets_in_ascending_order() {
    for metric in all() {
        let buckets = metric.kind.buckets();
        let is_histogram = matches!(metric.kind, Kind::Seconds | Kind::Sizes);
        assert_eq!(is_histogram, !buckets.is_empty(), "{}", metric.name);
        assert!(buckets.is_sorted(), "{}", metric.name);
    }
}
