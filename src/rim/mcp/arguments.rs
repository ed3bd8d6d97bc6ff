//! The arguments of a call as the tool's schema reads them, and the argument that asks for a call once more.

use serde_json::{Map, Value, json};

/// The argument by which a caller asks for the same call once more, on purpose. The gateway adds it to the schema of
/// each tool that writes, and takes it out of the call.
pub(super) const AGAIN: &str = "counterfoil_again";

/// Takes the number of the repetition out of the arguments: 0 for the first call.
pub(super) fn take_again(arguments: &mut Map<String, Value>) -> Result<u32, String> {
    match arguments.remove(AGAIN) {
        None | Some(Value::Null) => Ok(0),
        Some(given) => {
            let number = given.as_u64().and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(|| format!("`{AGAIN}` is a whole number: 1 for the first repetition, then 2"))
        }
    }
}

/// The schema of a tool that writes, with the argument for a repetition.
pub(super) fn with_again(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = schema.clone();
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        let about = "Leave it out. The same call twice within a short time is one: the second is answered with the first \
                     result. Only to do it once more on purpose, give 1, then 2.";
        properties.insert(AGAIN.to_owned(), json!({ "type": "integer", "minimum": 0, "description": about }));
    }
    schema
}

/// Removes optional arguments that have their default, which is `null` unless the schema names another one: clients
/// differ in whether they send them.
pub(super) fn normalize(schema: &Map<String, Value>, arguments: &mut Map<String, Value>) {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    arguments.retain(|name, value| {
        let default = properties.and_then(|known| known.get(name)?.get("default")).unwrap_or(&Value::Null);
        required.contains(&name.as_str()) || value != default
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else { panic!("{value}") };
        object
    }

    fn normal(schema: Value, arguments: Value) -> Value {
        let mut arguments = object(arguments);
        normalize(&object(schema), &mut arguments);
        arguments.into()
    }

    #[test]
    fn an_optional_argument_that_is_null_or_its_default_counts_as_absent() {
        let schema = json!({
            "properties": { "title": {}, "body": {}, "limit": { "default": 5 }, "due": { "default": "today" } },
            "required": ["title"],
        });
        let same = normal(schema.clone(), json!({ "title": "x", "body": null, "limit": 5 }));
        assert_eq!(same, json!({ "title": "x" }));
        // A required null, another value, and a null where the default is something else are kept.
        let kept = json!({ "title": null, "limit": 6, "due": null });
        assert_eq!(normal(schema, kept.clone()), kept);
    }

    #[test]
    fn a_schema_without_properties_drops_nothing_but_nulls() {
        assert_eq!(normal(json!({}), json!({ "a": 1, "b": null })), json!({ "a": 1 }));
    }

    #[test]
    fn a_repetition_is_a_number_that_the_server_is_not_shown() {
        let mut arguments = object(json!({ "a": 1, AGAIN: 2 }));
        assert_eq!(take_again(&mut arguments), Ok(2));
        assert_eq!(Value::from(arguments), json!({ "a": 1 }));
        assert!(take_again(&mut object(json!({ AGAIN: "new key" }))).is_err());
        assert!(take_again(&mut object(json!({ AGAIN: -1 }))).is_err());
        let offered = with_again(&object(json!({ "type": "object", "additionalProperties": false })));
        assert_eq!(offered["properties"][AGAIN]["type"], "integer");
    }
}
