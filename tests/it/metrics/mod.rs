//! Metrics: each moves with what it tells of, and each page names metrics that there are.
#![allow(clippy::float_cmp, reason = "the numbers are whole")]

mod calls;
mod database;
mod pages;
mod prometheus;
mod recorder;
mod runs;

/// The sources of these tests name each metric of the table.
#[test]
fn each_metric_is_seen_in_a_test() {
    let tests: String = crate::tidy::sources("tests/it/metrics").into_iter().map(|(_, text)| text).collect();
    let is_seen = |name: &str| [" ", "\"", "{"].iter().any(|end| tests.contains(&format!("\"{name}{end}")));
    let unseen: Vec<_> =
        counterfoil::metrics::all().map(|metric| metric.name).filter(|name| !is_seen(name)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}
