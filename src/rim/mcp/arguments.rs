//! The arguments of a call as the tool's schema reads them, and the argument that asks for a call once more.

use serde_json::{Map, Value, json};

/// The argument by which a caller asks for the same call once more, on purpose. The gateway adds it to the schema of
/// each tool that writes, and takes it out of the call.
pub(super) const AGAIN: &str = "counterfoil_again";

/// The field of an operation's input with the arguments that equal their defaults. Calls are compared without them.
pub(super) const DEFAULTS: &str = "defaults";

/// The arguments of an operation as the client gave them.
pub(super) fn given(input: &Value) -> Value {
    let mut arguments = input["arguments"].clone();
    if let (Some(arguments), Some(defaults)) = (arguments.as_object_mut(), input[DEFAULTS].as_object()) {
        arguments.extend(defaults.clone());
    }
    arguments
}

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

/// Removes the optional arguments that mean the same as none: the default that the schema names, and `null` where the schema allows no
/// `null`. Clients differ in whether they send them. The defaults are returned: they are sent as they were given, because the schema
/// may be older than the server.
///
/// A `null` that the schema allows is kept: to clear a field is not to leave it as it is.
pub(super) fn normalize(
    schema: &Map<String, Value>,
    arguments: &mut Map<String, Value>,
) -> Map<String, Value> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut defaults = Map::new();
    arguments.retain(|name, value| {
        let Some(property) = properties.and_then(|known| known.get(name)) else { return true };
        if required.contains(&name.as_str()) {
            return true;
        }
        match property.get("default") {
            Some(default) if *default == *value => {
                defaults.insert(name.clone(), value.take());
                false
            }
            Some(_) => true,
            None => !value.is_null() || admits_null(property),
        }
    });
    defaults
}

/// False if the schema of an argument certainly allows no `null`.
fn admits_null(property: &Value) -> bool {
    let any = |name: &str| property[name].as_array().is_none_or(|schemas| schemas.iter().any(admits_null));
    let all = |name: &str| property[name].as_array().is_none_or(|schemas| schemas.iter().all(admits_null));
    let by_type = match &property["type"] {
        Value::String(only) => only == "null" || property["nullable"] == true,
        Value::Array(types) => types.iter().any(|one| one == "null"),
        _ => true,
    };
    let by_value = property["enum"].as_array().is_none_or(|values| values.contains(&Value::Null))
        && property.get("const").is_none_or(Value::is_null);
    by_type && by_value && any("anyOf") && any("oneOf") && all("allOf") && *property != false
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
        drop(normalize(&object(schema), &mut arguments));
        arguments.into()
    }

    #[test]
    fn a_default_is_set_apart_and_a_null_that_the_schema_forbids_is_not() {
        let schema = json!({ "properties": { "limit": { "default": 5 }, "body": { "type": "string" } } });
        let mut arguments = object(json!({ "title": "x", "limit": 5, "body": null }));
        let defaults = normalize(&object(schema), &mut arguments);
        assert_eq!(Value::from(arguments), json!({ "title": "x" }));
        assert_eq!(Value::from(defaults), json!({ "limit": 5 }));
    }

    #[test]
    fn an_optional_argument_that_means_the_same_as_none_counts_as_absent() {
        let schema = json!({
            "properties": {
                "title": {},
                "body": { "type": "string" },
                "limit": { "default": 5 },
                "due": { "type": ["string", "null"], "default": "today" },
            },
            "required": ["title"],
        });
        let same = normal(schema.clone(), json!({ "title": "x", "body": null, "limit": 5 }));
        assert_eq!(same, json!({ "title": "x" }));
        // A required null, another value, and a null where the default is something else are kept.
        let kept = json!({ "title": null, "limit": 6, "due": null });
        assert_eq!(normal(schema, kept.clone()), kept);
    }

    #[test]
    fn a_null_that_the_schema_allows_reaches_the_server() {
        for property in [
            json!({}),
            json!({ "type": ["string", "null"] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] }),
            json!({ "type": "string", "nullable": true }),
            json!({ "enum": ["a", null] }),
            json!({ "$ref": "#/$defs/due" }),
        ] {
            let kept = json!({ "due": null });
            assert_eq!(
                normal(json!({ "properties": { "due": property } }), kept.clone()),
                kept,
                "{property}"
            );
        }
        let optional = [
            json!({ "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "enum": ["a", "b"] }),
            json!({ "allOf": [{}, { "type": "string" }] }),
        ];
        for property in optional {
            let absent = normal(json!({ "properties": { "due": property } }), json!({ "due": null }));
            assert_eq!(absent, json!({}), "{property}");
        }
        // An argument that the schema does not name is the server's to judge.
        assert_eq!(normal(json!({}), json!({ "b": null })), json!({ "b": null }));
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
