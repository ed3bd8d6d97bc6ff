//! The schema of a tool's input for a model, and the check of the model's arguments.

#[cfg(feature = "agent")]
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

/// The field that holds an input that is not an object.
const INPUT: &str = "input";

/// The form in which a model passes a tool's input.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    /// The JSON Schema of an object, because providers take nothing else.
    pub(crate) schema: Value,
    /// True if the tool's input is not an object, and is wrapped in a field of one.
    wrapped: bool,
}

impl Schema {
    /// The description and the schema of a tool's input type, from its documentation.
    #[cfg(feature = "agent")]
    pub(crate) fn of<T: JsonSchema>() -> (String, Self) {
        let mut schema = schemars::schema_for!(T).to_value();
        let mut description = String::new();
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("$schema");
            if let Some(Value::String(text)) = fields.remove("description") {
                description = text;
            }
        }
        (description, Self::given(schema))
    }

    /// The schema that a tool gives.
    pub(crate) fn given(mut schema: Value) -> Self {
        if schema["type"] == "object" {
            return Self { schema, wrapped: false };
        }
        // References point from the root, so the definitions move there.
        let definitions = schema.as_object_mut().and_then(|fields| fields.remove("$defs"));
        let mut object = json!({ "type": "object", "properties": { INPUT: schema }, "required": [INPUT] });
        if let Some(definitions) = definitions {
            object["$defs"] = definitions;
        }
        Self { schema: object, wrapped: true }
    }

    /// The tool's input, from the arguments that a model wrote.
    ///
    /// A field that the tool does not know is refused, not ignored. Ignored, it would make another operation of the
    /// same call, and "retry with this new key" must not reach any key.
    pub(crate) fn input(&self, arguments: Value) -> Result<Value, String> {
        let Value::Object(mut fields) = arguments else {
            return Err("the arguments are no JSON object".to_owned());
        };
        self.check(&fields)?;
        if self.wrapped {
            return Ok(fields.remove(INPUT).unwrap_or(Value::Null));
        }
        Ok(Value::Object(fields))
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        let known = self.schema["properties"].as_object();
        if self.schema.get("additionalProperties").is_none_or(|open| *open == false)
            && let Some(field) =
                fields.keys().find(|field| known.is_none_or(|known| !known.contains_key(*field)))
        {
            let known: Vec<_> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
            return Err(format!("there is no argument {field:?}; there are: {}", known.join(", ")));
        }
        let mut required = self.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        match required.find(|field| !fields.contains_key(*field)) {
            Some(missing) => Err(format!("the argument {missing:?} is missing")),
            None => Ok(()),
        }
    }
}

#[cfg(all(test, feature = "agent"))]
mod tests {
    use super::*;

    /// Finds something.
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Search {
        /// Words to look for.
        words: String,
        limit: Option<u32>,
    }

    #[test]
    fn a_type_describes_itself() {
        let (description, schema) = Schema::of::<Search>();
        assert_eq!(description, "Finds something.");
        assert_eq!(schema.schema["properties"]["words"]["description"], "Words to look for.");
        assert_eq!(schema.schema["required"], json!(["words"]));
    }

    #[test]
    fn what_is_no_object_stands_in_one() {
        let (_, schema) = Schema::of::<String>();
        assert_eq!(schema.schema["required"], json!(["input"]));
        assert_eq!(schema.input(json!({ "input": "x" })), Ok(json!("x")));
    }

    #[test]
    fn unknown_and_missing_arguments_are_named() {
        let (_, schema) = Schema::of::<Search>();
        assert!(schema.input(json!({ "words": "x" })).is_ok());
        assert!(schema.input(json!({ "words": "x", "key": "new" })).unwrap_err().contains("\"key\""));
        assert!(schema.input(json!({ "limit": 3 })).unwrap_err().contains("\"words\" is missing"));
        assert!(schema.input(json!(["words"])).is_err());
        let open = Schema::given(json!({ "type": "object", "additionalProperties": true }));
        assert!(open.input(json!({ "anything": 1 })).is_ok());
        let empty = Schema::given(json!({ "type": "object" }));
        assert!(empty.input(json!({ "anything": 1 })).is_err());
    }
}
