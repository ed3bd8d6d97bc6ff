//! The files in `docs` are what the program says, takes and prints.

use std::fs;
use std::path::{Path, PathBuf};

use counterfoil::policy::{Policy, PolicyRule, Preset};
use serde_json::Value;

use super::program::Checked;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn page(name: &str) -> String {
    fs::read_to_string(docs().join(name)).unwrap()
}

#[test]
fn the_schema_in_the_docs_is_the_one_that_the_program_prints() {
    let printed = Checked::of(&docs(), &["--schema"]);
    assert_eq!(printed.code, Some(0));
    let hint = "run `counterfoil check --schema > docs/policy.schema.json`";
    let schema: Value = serde_json::from_str(&printed.out).unwrap();
    assert!(serde_json::from_str::<Value>(&page("policy.schema.json")).unwrap() == schema, "{hint}");
    assert_eq!(schema, counterfoil::policy::schema());
    assert!(schema["properties"]["http"]["description"].is_string(), "editors show what a field means");
    assert!(!printed.out.contains("\"null\""), "no field may be empty");
}

#[test]
fn the_example_policy_is_safe_without_a_warning_and_stands_in_the_docs_whole() {
    let checked = Checked::of(&docs(), &["policy.yml"]);
    assert_eq!((checked.code, checked.out.as_str()), (Some(0), "policy.yml: nothing unsafe was found\n"));
    let example = page("policy.yml");
    assert!(
        page("policy.md").contains(&format!("```yaml\n{example}```")),
        "copy docs/policy.yml into docs/policy.md"
    );
    let policy = Policy::parse(example).unwrap().checked().unwrap();
    assert_eq!(policy.sources(), 6);
}

#[test]
fn the_policy_of_the_example_service_is_safe_without_a_warning() {
    let example = docs().join("../workflows/orders_service");
    let checked = Checked::of(&example, &["policy.yml"]);
    assert_eq!((checked.code, checked.out.as_str()), (Some(0), "policy.yml: nothing unsafe was found\n"));
}

#[test]
fn every_rule_and_every_field_stands_in_the_docs() {
    let page = page("policy.md");
    for rule in PolicyRule::ALL {
        let row = format!("| `{}` | {} |", rule.code(), rule.severity().name());
        assert!(page.contains(&row), "docs/policy.md has no row {row:?}");
    }
    let schema = counterfoil::policy::schema();
    let sections = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    for field in
        sections.filter_map(|section| section["properties"].as_object()).flat_map(|fields| fields.keys())
    {
        assert!(page.contains(field.as_str()), "docs/policy.md says nothing of {field:?}");
    }
    for preset in Preset::ALL {
        let days = preset.ttl().as_secs() / 86_400;
        assert!(page.contains(&format!("| `{}` | {days} days |", preset.name())), "{preset:?}");
    }
}

#[test]
fn links_of_the_pages_lead_somewhere() {
    for name in ["policy.md", "symptoms.md"] {
        let text = page(name);
        let links: Vec<_> = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
        assert!(links.len() >= 5, "{name}");
        for link in links {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            assert!(file.is_empty() || docs().join(file).exists(), "{name} links to {link}");
            let heading =
                |line: &&str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-") == anchor;
            assert!(anchor.is_empty() || text.lines().any(|line| heading(&line)), "{name} links to {link}");
        }
    }
}
