//! A policy that is written and read again is the same, and the schema and the parser agree on unknown fields.

use counterfoil::policy::{Policy, PolicyError, PolicyRule, schema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A random value that the schema takes at this place.
fn value(schema: &Value, root: &Value) -> BoxedStrategy<Value> {
    let schema = resolved(schema, root);
    if let Some(choices) = schema["enum"].as_array() {
        return proptest::sample::select(choices.clone()).boxed();
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choices: Vec<_> = choices.iter().map(|choice| value(choice, root)).collect();
        return proptest::strategy::Union::new(choices).boxed();
    }
    if !schema["const"].is_null() {
        return Just(schema["const"].clone()).boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => (1_u32..).prop_map(Value::from).boxed(),
        Some("array") => {
            proptest::collection::vec(value(&schema["items"], root), 0..3).prop_map(Value::from).boxed()
        }
        Some("object") if schema["properties"].is_object() => section(schema, root),
        Some("object") => sources(schema, root),
        Some("string") => text(schema["pattern"].as_str()),
        other => panic!("{other:?} in {schema}"),
    }
}

fn resolved<'s>(schema: &'s Value, root: &'s Value) -> &'s Value {
    match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => schema,
    }
}

fn section(schema: &Value, root: &Value) -> BoxedStrategy<Value> {
    let fields = schema["properties"].as_object().unwrap().clone();
    let fields = fields.into_iter().map(|(name, of)| {
        let value = proptest::option::of(value(&of, root));
        value.prop_map(move |value| value.map(|value| (name.clone(), value)))
    });
    let fields: Vec<_> = fields.collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
}

/// Names of sources are free.
fn sources(schema: &Value, root: &Value) -> BoxedStrategy<Value> {
    let of = ["additionalProperties", "patternProperties"]
        .into_iter()
        .find(|key| schema[*key].is_object())
        .unwrap();
    let source = match of {
        "additionalProperties" => &schema[of],
        _ => schema[of].as_object().unwrap().values().next().unwrap(),
    };
    let name = proptest::sample::select(vec!["orders", "a-b_c9", "9", "null", "true", "1e3", "0x1f", "no"]);
    let sources = proptest::collection::btree_map(name, value(source, root), 0..3);
    sources
        .prop_map(|all| {
            all.into_iter().map(|(name, one)| (name.to_owned(), one)).collect::<Map<_, _>>().into()
        })
        .boxed()
}

/// Texts of each form, some of which YAML would take for something else if they were not quoted.
fn text(pattern: Option<&str>) -> BoxedStrategy<Value> {
    let forms = match pattern {
        None => vec![
            "",
            "true",
            "null",
            "~",
            "1",
            "x: y",
            "- a",
            "#no",
            "é\u{2028}",
            " lead",
            "it's \"q\"",
            "a\nb",
            "{",
            "urn:a:b",
        ],
        Some(pattern) if pattern.contains("seconds") => {
            vec!["1 s", "300s", "5 min", "1 hour", "72h", "1 day", "30 days", "30d"]
        }
        Some(pattern) if pattern.contains("days") => vec!["1 hour", "72 hours", "1 day", "30d"],
        Some(pattern) if pattern.contains("A-Z_") => vec!["A", "_X", "BANK_SECRET_2"],
        Some(pattern) if pattern.contains("event_id") => vec!["event_id", "/a/b~1c", "header:X-Id", "topic"],
        Some(pattern) if pattern.contains("^ ]") => vec!["/operations", "/"],
        Some(pattern) if pattern.starts_with("^/") => vec!["/a", "/a b/: c", "/"],
        Some(pattern) if pattern.contains("a-z0-9][") => vec!["orders"],
        Some(_) => vec!["X-Request-Version", "null", "~", "1"],
    };
    proptest::sample::select(forms).prop_map(Value::from).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_policy_that_is_written_and_read_again_is_the_same(file in { let root = schema(); value(&root, &root) }) {
        // JSON is YAML.
        let policy = Policy::parse(file.to_string()).map_err(|error| TestCaseError::fail(format!("{error}\n{file:#}")))?;
        let written = policy.to_yaml();
        let again = Policy::parse(&written).map_err(|error| TestCaseError::fail(format!("{error}\n{written}")))?;
        prop_assert_eq!(&again, &policy, "{}", written);
        prop_assert_eq!(again.to_yaml(), written);
        let codes = |policy: &Policy| {
            let mut codes: Vec<_> = policy.check().into_iter().map(|found| (found.rule.code(), found.path)).collect();
            codes.sort_unstable();
            codes
        };
        prop_assert_eq!(codes(&again), codes(&policy));
    }
}

/// Every section of a file that has all of them, by its path.
fn sections(schema: &Value, root: &Value, path: &str, found: &mut Vec<String>) -> Value {
    let schema = resolved(schema, root);
    if let Some(fields) = schema["properties"].as_object() {
        assert_eq!(schema["additionalProperties"], json!(false), "{path:?} takes unknown fields");
        found.push(path.to_owned());
        let inner = fields.iter().filter(|(_, of)| resolved(of, root)["type"] == "object");
        let inner =
            inner.map(|(name, of)| (name.clone(), sections(of, root, &format!("{path}/{name}"), found)));
        return Value::Object(inner.collect());
    }
    let source = &schema["additionalProperties"];
    let source = if source.is_object() {
        source
    } else {
        schema["patternProperties"].as_object().unwrap().values().next().unwrap()
    };
    json!({ "one": sections(source, root, &format!("{path}/one"), found) })
}

#[test]
fn an_unknown_field_is_refused_by_the_schema_and_by_the_parser_in_every_section() {
    let root = schema();
    let mut found = Vec::new();
    let file = sections(&root, &root, "", &mut found);
    assert!(Policy::parse(file.to_string()).is_ok(), "{file:#}");
    assert!(found.len() >= 11, "{found:?}");
    for path in found {
        let mut file = file.clone();
        file.pointer_mut(&path).unwrap()["unknown_field"] = json!("x");
        match Policy::parse(file.to_string()) {
            Err(PolicyError::Malformed(finding)) => {
                assert_eq!(finding.rule, PolicyRule::UnknownField, "{path}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
}
