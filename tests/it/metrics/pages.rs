//! The pages about metrics: the table of the guide, the dashboard and the alerts name the metrics that there are.

use std::collections::BTreeSet;
use std::path::Path;

use counterfoil::metrics::{Kind, all};
use serde_json::Value;

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)).unwrap()
}

/// The names of metrics and labels in a text, as Prometheus shows them.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("counterfoil_")).map(ToOwned::to_owned).collect()
}

/// The series of a metric: a histogram has three.
fn shown() -> BTreeSet<String> {
    let series = |kind, name: &str| match kind {
        Kind::Seconds | Kind::Sizes => {
            ["_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")).to_vec()
        }
        _ => vec![name.to_owned()],
    };
    all().flat_map(|metric| series(metric.kind, metric.name)).collect()
}

#[test]
fn the_guide_has_the_table_of_the_metrics() {
    let kind = |kind| match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Seconds => "histogram, seconds",
        _ => "histogram",
    };
    let rows = all().map(|metric| {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
        format!("| `{}` | {} | {labels} | {} |", metric.name, kind(metric.kind), metric.meaning)
    });
    let expected: Vec<_> = rows.collect();
    let page = page("metrics.md");
    let listed: Vec<_> = page.lines().filter(|line| line.starts_with("| `counterfoil_")).collect();
    assert_eq!(listed, expected, "\n{}", expected.join("\n"));
}

/// All expressions of a value of JSON, with those of its parts.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(ToOwned::to_owned));
            fields.values().for_each(|field| expressions(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn each_metric_of_the_dashboard_and_of_the_alerts_exists() {
    let dashboard: Value = serde_json::from_str(&page("grafana.json")).unwrap();
    let mut drawn = Vec::new();
    expressions(&dashboard, &mut drawn);
    let alerts = page("alerts.yml");
    let rules: Vec<_> = alerts.lines().filter(|line| line.trim_start().starts_with("expr:")).collect();
    let shown = shown();
    for text in drawn.iter().map(String::as_str).chain(rules.iter().copied()) {
        let named = named(text);
        assert!(!named.is_empty() || text.contains("up{"), "no metric in {text}");
        let gone: Vec<_> = named.difference(&shown).collect();
        assert!(gone.is_empty(), "{gone:?} in {text}");
    }
    assert!(drawn.len() >= 15 && rules.len() >= 8, "{} drawn, {} rules", drawn.len(), rules.len());
}

/// The labels in braces are labels of the metric.
#[test]
fn each_label_of_the_dashboard_and_of_the_alerts_exists() {
    let texts = [page("grafana.json").replace("\\\"", "\""), page("alerts.yml")];
    for metric in all() {
        for text in &texts {
            for (at, _) in text.match_indices(&format!("{}{{", metric.name)) {
                let inside = text[at..].split_once('{').unwrap().1.split_once('}').unwrap().0;
                for label in inside.split(',').filter_map(|one| one.split(['=', '!']).next()) {
                    assert!(metric.labels.contains(&label), "{label} of {}", metric.name);
                }
            }
        }
    }
}
