//! The rule of a lookup: what an answer of the tool that reads says about a call.

use serde_json::{Map, Value, json};

use super::file::{LookupErrors, LookupSection};
use super::template::{Values, names_in};
use crate::ledger::{Found, LookupResult};
use crate::tool::declared::{Recognition, id_at};
use crate::tool::lookup::Expected;

/// The arguments of the lookup.
pub(super) fn arguments(section: &LookupSection, values: &Values<'_>) -> Map<String, Value> {
    let filled =
        section.arguments.iter().flatten().map(|(name, template)| (name.clone(), values.fill(template)));
    filled.filter(|(_, value)| !value.is_null()).collect()
}

/// What a lookup looks for, with all values filled in.
pub(super) struct Sought {
    /// True if an answer with `isError` says that there is no such effect.
    pub(super) error_is_missing: bool,
    /// A text that the answer must contain.
    pub(super) contains: Option<String>,
    /// The place of the effect, or of a list of candidates.
    pub(super) at: String,
    /// The values by which a candidate is ours.
    pub(super) matches: Vec<(String, Value)>,
    /// The place of the effect's id in a candidate.
    pub(super) id: Option<String>,
    /// The values that our effect must have. Another one is somebody else's.
    pub(super) expected: Expected,
    /// True if a list of candidates says which of them is ours. A list for the values of the call may hold another call's effect.
    pub(super) tells_apart: bool,
}

impl Sought {
    /// What a section of the configuration looks for. `None` if the call lacks an argument by which its effect would be recognised:
    /// any effect would count as ours without it. So it is with an argument that is not kept: the digest in its place is at no server.
    pub(super) fn of(section: &LookupSection, values: &Values<'_>) -> Option<Self> {
        let matches = section.matches.iter().flatten();
        let contains = section.contains.as_ref();
        let is_known = matches.clone().all(|(_, template)| values.has_all(template))
            && contains.is_none_or(|text| values.has_all_of(text))
            && !section.arguments.iter().flatten().any(|(_, template)| values.names_secret(template));
        if !is_known {
            return None;
        }
        Some(Self {
            error_is_missing: section.errors == Some(LookupErrors::NotFound),
            contains: contains.map(|text| values.fill_text(text)),
            at: section.at.as_ref().map(|pointer| pointer.as_str().to_owned()).unwrap_or_default(),
            matches: matches
                .map(|(pointer, template)| (pointer.as_str().to_owned(), values.fill(template)))
                .collect(),
            id: section.id.as_ref().map(|pointer| pointer.as_str().to_owned()),
            expected: Expected::new(),
            tells_apart: recognition(section).tells_apart(),
        })
    }

    fn is_ours(&self, candidate: &Value) -> bool {
        self.matches
            .iter()
            .all(|(pointer, value)| candidate.pointer(pointer).unwrap_or(&Value::Null) == value)
    }

    fn id_of(&self, candidate: &Value) -> Option<String> {
        id_at(candidate, self.id.as_ref()?)
    }
}

/// What a section of the configuration tells the effect of a call by.
pub(super) fn recognition(section: &LookupSection) -> Recognition {
    let asked = || section.arguments.iter().flatten().flat_map(|(_, template)| names_in(template));
    Recognition {
        compares: section.matches.as_ref().is_some_and(|matches| !matches.is_empty())
            || section.contains.as_ref().is_some_and(|text| !text.is_empty()),
        asks_by_key: asked().any(|name| name == "key"),
        asks_for_one: asked().next().is_some(),
    }
}

/// What an answer says about the call. `output` makes the call's output of the effect that was found.
///
/// An answer in which the place of the effect is missing says nothing: it may be the text of a server that is busy, or another
/// form of answer. Only `null` or an empty list at that place says that there is no effect.
pub(super) fn found(
    sought: &Sought,
    answer: &Value,
    output: impl Fn(&Value) -> Value,
) -> LookupResult<Value> {
    if answer["isError"] == true {
        return if sought.error_is_missing { LookupResult::NotFound } else { LookupResult::Unknown };
    }
    let text = text(answer);
    if sought.contains.as_ref().is_some_and(|contains| !text.contains(contains)) {
        return LookupResult::NotFound;
    }
    let content = match content(answer) {
        Some(content) => content,
        None if sought.contains.is_some() && sought.at.is_empty() && sought.matches.is_empty() => {
            Value::String(text)
        }
        None => return LookupResult::Unknown,
    };
    let candidates = match content.pointer(&sought.at) {
        None => return LookupResult::Unknown,
        Some(Value::Null) => Vec::new(),
        Some(Value::Array(candidates)) if !(candidates.is_empty() || sought.tells_apart) => {
            return LookupResult::Unknown;
        }
        Some(Value::Array(candidates)) => candidates.iter().collect(),
        Some(candidate) => vec![candidate],
    };
    let matches: Vec<_> = candidates.into_iter().filter(|candidate| sought.is_ours(candidate)).collect();
    let foreign: Vec<_> = matches.iter().filter_map(|one| sought.expected.difference(one)).collect();
    if !foreign.is_empty() {
        return LookupResult::Foreign { what: foreign.join("; ") };
    }
    match matches.as_slice() {
        [] => LookupResult::NotFound,
        [one] => LookupResult::Committed { output: output(one), external_ref: sought.id_of(one) },
        many => LookupResult::Duplicated {
            effects: many
                .iter()
                .map(|one| Found { external_ref: sought.id_of(one), output: Some(output(one)) })
                .collect(),
        },
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
pub(super) fn as_answer(effect: &Value) -> Value {
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
        let values = Values { key: "k1", arguments: &json!({ "title": "Tea" }) };
        found(&Sought::of(&section(yaml), &values).expect("all arguments"), answer, as_answer)
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
    fn an_answer_without_the_place_of_the_effect_says_nothing() {
        let busy = json!({ "content": [{ "type": "text", "text": "busy, try again later" }] });
        assert_eq!(look(BY_REFERENCE, &busy), LookupResult::Unknown);
        assert_eq!(look("{ tool: read, matches: { /ref: '{key}' } }", &busy), LookupResult::Unknown);
        let other = json!({ "content": [], "structuredContent": { "status": "busy" } });
        assert_eq!(look(BY_REFERENCE, &other), LookupResult::Unknown);
        assert_eq!(look(BY_REFERENCE, &json!({ "content": [] })), LookupResult::Unknown);
        assert_eq!(look(BY_REFERENCE, &notes(&json!([]))), LookupResult::NotFound);
    }

    #[test]
    fn a_text_is_no_effect_where_the_lookup_says_of_no_text_that_it_is_one() {
        for text in ["No such note.", "busy, try again later", ""] {
            let answer = json!({ "content": [{ "type": "text", "text": text }] });
            assert_eq!(look("{ tool: read }", &answer), LookupResult::Unknown, "{text:?}");
        }
    }

    #[test]
    fn a_lookup_without_a_mark_of_the_call_recognises_nothing() {
        let suffices = |yaml: &str| recognition(&section(yaml)).suffices();
        for any in
            ["", ", at: /notes", ", at: /notes, arguments: { limit: 10 }", ", matches: {}, contains: ''"]
        {
            assert!(!suffices(&format!("{{ tool: list{any} }}")), "{any}");
        }
        for ours in ["matches: { /ref: '{key}' }", "contains: '{key}'", "arguments: { order: '{/order}' }"] {
            assert!(suffices(&format!("{{ tool: list, {ours} }}")), "{ours}");
        }
    }

    #[test]
    fn a_list_for_an_argument_of_the_call_does_not_say_which_effect_is_ours() {
        let by_title = "{ tool: list, at: /notes, arguments: { title: '{/title}' } }";
        assert_eq!(look(by_title, &notes(&json!([{ "id": 7 }]))), LookupResult::Unknown);
        assert_eq!(look(by_title, &notes(&json!([]))), LookupResult::NotFound);
        assert!(matches!(look(by_title, &notes(&json!({ "id": 7 }))), LookupResult::Committed { .. }));
        let by_key = "{ tool: list, at: /notes, arguments: { ref: '{key}' } }";
        assert!(matches!(look(by_key, &notes(&json!([{ "id": 7 }]))), LookupResult::Committed { .. }));
    }

    #[test]
    fn an_effect_is_not_recognised_by_an_argument_that_the_call_lacks() {
        let values = Values { key: "k1", arguments: &json!({ "title": "Tea" }) };
        let is_known = |yaml: &str| Sought::of(&section(yaml), &values).is_some();
        assert!(is_known("{ tool: read, contains: '{/title}', matches: { /title: '{/title}' } }"));
        assert!(!is_known("{ tool: read, contains: 'Memo: {/memo}' }"));
        assert!(!is_known("{ tool: list, at: /notes, matches: { /memo: '{/memo}' } }"));
        assert!(!is_known("{ tool: list, at: /notes, matches: { /of: { memo: ['{/memo}'] } } }"));
    }

    #[test]
    fn an_effect_is_not_looked_for_by_the_digest_of_an_argument_that_is_not_kept() {
        let card = json!({ "$secret": "redacted" });
        let values = Values { key: "k1", arguments: &json!({ "title": "Tea", "pay": { "card": card } }) };
        let is_known = |yaml: &str| Sought::of(&section(yaml), &values).is_some();
        assert!(is_known("{ tool: list, arguments: { title: '{/title}' }, matches: { /ref: '{key}' } }"));
        for pointer in ["/pay/card", "/pay"] {
            assert!(!is_known(&format!("{{ tool: list, matches: {{ /x: '{{{pointer}}}' }} }}")), "{pointer}");
            assert!(!is_known(&format!("{{ tool: list, contains: 'x {{{pointer}}}' }}")), "{pointer}");
        }
        assert!(!is_known("{ tool: list, arguments: { card: '{/pay/card}' }, matches: { /ref: '{key}' } }"));
        assert!(!is_known("{ tool: list, arguments: { q: ['of {/pay}'] }, matches: { /ref: '{key}' } }"));
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
