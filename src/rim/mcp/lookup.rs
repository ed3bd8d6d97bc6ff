//! The rule of a lookup: what an answer of the tool that reads says about a call.

use serde_json::{Map, Value, json};

use super::file::{LookupErrors, LookupSection};
use super::template::Values;
use crate::ledger::{Found, LookupResult};

/// The arguments of the lookup.
pub(super) fn arguments(section: &LookupSection, values: &Values<'_>) -> Map<String, Value> {
    let filled =
        section.arguments.iter().flatten().map(|(name, template)| (name.clone(), values.fill(template)));
    filled.filter(|(_, value)| !value.is_null()).collect()
}

/// What an answer says about the call, whose result is written as an answer of a tool.
pub(super) fn found(section: &LookupSection, values: &Values<'_>, answer: &Value) -> LookupResult<Value> {
    if answer["isError"] == true {
        return match section.errors {
            Some(LookupErrors::NotFound) => LookupResult::NotFound,
            Some(LookupErrors::Unknown) | None => LookupResult::Unknown,
        };
    }
    let text = text(answer);
    if section.contains.as_ref().is_some_and(|contains| !text.contains(&values.fill_text(contains))) {
        return LookupResult::NotFound;
    }
    let content = content(answer).unwrap_or(Value::String(text));
    let at = section.at.as_ref().map_or("", |pointer| pointer.as_str());
    let candidates = match content.pointer(at) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(candidates)) => candidates.iter().collect(),
        Some(candidate) => vec![candidate],
    };
    let is_match = |candidate: &&Value| {
        section.matches.iter().flatten().all(|(pointer, template)| {
            candidate.pointer(pointer.as_str()).unwrap_or(&Value::Null) == &values.fill(template)
        })
    };
    let id = |candidate: &Value| id(candidate.pointer(section.id.as_ref()?.as_str())?);
    let matches: Vec<_> = candidates.into_iter().filter(is_match).collect();
    match matches.as_slice() {
        [] => LookupResult::NotFound,
        [one] => LookupResult::Committed { output: as_answer(one), external_ref: id(one) },
        many => LookupResult::Duplicated {
            effects: many
                .iter()
                .map(|one| Found { external_ref: id(one), output: Some(as_answer(one)) })
                .collect(),
        },
    }
}

/// The id of an effect as the ledger keeps it.
pub(super) fn id(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The content of an answer: the structured one, or its text as JSON. `None` if the text is no JSON.
pub(super) fn content(answer: &Value) -> Option<Value> {
    match answer.get("structuredContent") {
        Some(content) if !content.is_null() => Some(content.clone()),
        _ => serde_json::from_str(&text(answer)).ok(),
    }
}

/// The texts of an answer, one a line.
pub(super) fn text(answer: &Value) -> String {
    let blocks = answer["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// An effect that was found, as an answer: the call's own answer was lost.
fn as_answer(effect: &Value) -> Value {
    let text = effect.as_str().map_or_else(|| effect.to_string(), str::to_owned);
    json!({ "content": [{ "type": "text", "text": text }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(yaml: &str) -> LookupSection {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn look(yaml: &str, answer: &Value) -> LookupResult<Value> {
        found(&section(yaml), &Values { key: "k1", arguments: &json!({ "title": "Tea" }) }, answer)
    }

    const BY_REFERENCE: &str = "{ tool: list, at: /notes, matches: { /ref: '{key}' }, id: /id }";

    fn notes(notes: &Value) -> Value {
        json!({ "content": [], "structuredContent": { "notes": notes } })
    }

    #[test]
    fn a_list_is_searched_by_the_reference() {
        let answer = notes(&json!([{ "id": 7, "ref": "k0" }, { "id": 8, "ref": "k1" }, { "id": 9 }]));
        let LookupResult::Committed { external_ref, output } = look(BY_REFERENCE, &answer) else { panic!() };
        assert_eq!(external_ref.as_deref(), Some("8"));
        assert_eq!(output["content"][0]["text"], r#"{"id":8,"ref":"k1"}"#);
        assert_eq!(look(BY_REFERENCE, &notes(&json!([{ "id": 7, "ref": "k0" }]))), LookupResult::NotFound);
        assert_eq!(look(BY_REFERENCE, &notes(&Value::Null)), LookupResult::NotFound);
        let twice = notes(&json!([{ "id": 7, "ref": "k1" }, { "id": 8, "ref": "k1" }]));
        assert!(
            matches!(look(BY_REFERENCE, &twice), LookupResult::Duplicated { effects } if effects.len() == 2)
        );
    }

    #[test]
    fn an_answer_without_structure_is_read_as_json_or_as_text() {
        let answer = json!({ "content": [{ "type": "text", "text": r#"{"notes":[{"id":1,"ref":"k1"}]}"# }] });
        assert!(matches!(look(BY_REFERENCE, &answer), LookupResult::Committed { .. }));
        let text = json!({ "content": [{ "type": "text", "text": "Title: Tea (k1)" }] });
        assert!(matches!(
            look("{ tool: read, contains: '{/title} ({key})' }", &text),
            LookupResult::Committed { .. }
        ));
        assert_eq!(look("{ tool: read, contains: 'k2' }", &text), LookupResult::NotFound);
    }

    #[test]
    fn an_error_is_no_proof_unless_the_policy_says_so() {
        let error = json!({ "content": [], "isError": true });
        assert_eq!(look("{ tool: read }", &error), LookupResult::Unknown);
        assert_eq!(look("{ tool: read, errors: not_found }", &error), LookupResult::NotFound);
    }

    #[test]
    fn absent_arguments_are_left_out() {
        let section =
            section("{ tool: read, arguments: { ref: '{key}', title: '{/title}', due: '{/due}' } }");
        let values = Values { key: "k1", arguments: &json!({ "title": "Tea" }) };
        assert_eq!(Value::from(arguments(&section, &values)), json!({ "ref": "k1", "title": "Tea" }));
    }
}
