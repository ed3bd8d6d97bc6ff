//! The JSON Schema of the policy file, for editors and for programs that write policies.

use serde_json::{Value, json};

use super::file::File;

/// The JSON Schema (2020-12) of the policy file. The schema describes the fields and their forms; only
/// [`Policy::check`](super::Policy::check) finds unsafe settings.
///
/// ```
/// let schema = counterfoil::policy::schema();
/// assert_eq!(schema["additionalProperties"], false);
/// assert!(schema["properties"]["http"].is_object());
/// ```
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(File).to_value();
    tidy(&mut schema);
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("title".to_owned(), json!("counterfoil policy"));
    }
    schema
}

/// Changes the derived schema: a field may be absent, and may not be null. Removes the examples from descriptions,
/// because they are for programmers only.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description")
                && let Some(end) = text.find("\n\n```")
            {
                text.truncate(end);
            }
            if let Some(Value::Array(kinds)) = fields.get_mut("type") {
                kinds.retain(|kind| *kind != "null");
                if let [kind] = kinds.as_slice() {
                    let kind = kind.clone();
                    fields.insert("type".to_owned(), kind);
                }
            }
            let null = json!({ "type": "null" });
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf")
                && choices.contains(&null)
            {
                choices.retain(|choice| *choice != null);
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    fields.remove("anyOf");
                    for (name, value) in only {
                        fields.entry(name).or_insert(value);
                    }
                }
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
