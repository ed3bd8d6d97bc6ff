//! The schema of a workflow's input, by which an input is checked before its run is started. The worker decodes the input all the same.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Display;

use boon::{Compiler, Draft, ErrorKind, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde_json::Value;

/// The maximum length of a schema as JSON, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// The address of the schema for references within it.
const ADDRESS: &str = "schema:///input.json";
/// The number of misfits that are told.
const TOLD: usize = 5;
/// The maximum length of a part of a misfit, in characters.
const PART: usize = 200;

/// A schema that was read, ready to check inputs.
pub(crate) struct InputSchema {
    schemas: Schemas,
    root: SchemaIndex,
}

impl InputSchema {
    /// Reads a schema, in the draft that its `$schema` names, or else in 2020-12.
    ///
    /// # Errors
    /// The reason why the schema is unusable.
    pub(crate) fn of(schema: &Value) -> Result<Self, String> {
        let text = schema.to_string();
        if text.len() > MAX_BYTES {
            return Err(format!(
                "the schema of its input has {} bytes, and may have {MAX_BYTES}",
                text.len()
            ));
        }
        // The row of the schema is read back, and holds it one level deeper.
        serde_json::from_str::<Value>(&format!("[[{text}]]")).map_err(|error| unusable(&error))?;
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.set_default_draft(Draft::V2020_12);
        compiler.use_loader(Box::new(NothingElse));
        compiler.add_resource(ADDRESS, schema.clone()).map_err(|error| unusable(&error))?;
        let root = compiler.compile(ADDRESS, &mut schemas).map_err(|error| unusable(&error))?;
        Ok(Self { schemas, root })
    }

    /// Checks an input.
    ///
    /// # Errors
    /// The first misfits in words, each after its place in the input as a JSON pointer.
    pub(crate) fn check(&self, input: &Value) -> Result<(), String> {
        let Err(error) = self.schemas.validate(input, self.root) else { return Ok(()) };
        let mut misfits = BTreeSet::new();
        collect(&error, &mut misfits);
        let told = misfits.iter().take(TOLD).map(|(place, words)| match place.as_str() {
            "" => format!("the input itself: {words}"),
            place => format!("{place}: {words}"),
        });
        let told = told.collect::<Vec<_>>().join("; ");
        match misfits.len().saturating_sub(TOLD) {
            0 => Err(told),
            more => Err(format!("{told}; and {more} more")),
        }
    }
}

/// A loader that finds nothing: a reference to a file or to an address elsewhere would read what only some processes have.
struct NothingElse;

impl UrlLoader for NothingElse {
    fn load(&self, _url: &str) -> Result<Value, Box<dyn Error>> {
        Err("the schema may refer to its own parts only".into())
    }
}

fn unusable(error: &impl Display) -> String {
    let text = format!("{error:#}");
    let words: Vec<_> = text.split_whitespace().collect();
    format!("the schema of its input is unusable: {}", words.join(" "))
}

/// Collects the misfits, each with its place. The order of the validator's own list is random.
fn collect(error: &ValidationError<'_, '_>, misfits: &mut BTreeSet<(String, String)>) {
    if error.causes.is_empty() || matches!(error.kind, ErrorKind::AnyOf | ErrorKind::OneOf(_)) {
        misfits.insert((short(&error.instance_location), short(&error.kind)));
    }
    for cause in &error.causes {
        collect(cause, misfits);
    }
}

fn short(part: &impl Display) -> String {
    part.to_string().chars().take(PART).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn misfit(schema: &Value, input: &Value) -> String {
        InputSchema::of(schema).unwrap().check(input).unwrap_err()
    }

    #[test]
    fn a_misfit_names_its_place() {
        let schema = json!({
            "type": "object",
            "properties": { "cents": { "type": "integer" }, "to": { "$ref": "#/$defs/person" } },
            "required": ["cents"],
            "$defs": { "person": { "type": "object", "properties": { "a/b": { "type": "string" } } } },
        });
        let read = InputSchema::of(&schema).unwrap();
        assert_eq!(read.check(&json!({ "cents": 7, "to": { "a/b": "Ann" } })), Ok(()));
        let both = read.check(&json!({ "cents": "7", "to": { "a/b": 1 } })).unwrap_err();
        assert!(both.starts_with("/cents: ") && both.contains("; /to/a~1b: "), "{both}");
        let missing = read.check(&json!({})).unwrap_err();
        assert!(missing.starts_with("the input itself: ") && missing.contains("cents"), "{missing}");
    }

    #[test]
    fn of_several_alternatives_each_misfit_is_told() {
        let schema =
            json!({ "properties": { "at": { "anyOf": [{ "type": "string" }, { "type": "null" }] } } });
        let told = misfit(&schema, &json!({ "at": 7 }));
        assert!(told.matches("/at: ").count() == 3 && told.contains("string"), "{told}");
    }

    #[test]
    fn of_many_misfits_the_first_ones_are_told() {
        let told = misfit(&json!({ "items": { "type": "string" } }), &json!([1, 2, 3, 4, 5, 6, 7]));
        assert!(told.starts_with("/0: ") && told.ends_with("; and 2 more"), "{told}");
        let long = misfit(&json!({ "const": "x".repeat(5000) }), &json!("y".repeat(5000)));
        assert!(long.len() < 1000, "{long}");
    }

    #[test]
    fn a_malformed_schema_is_refused_with_a_reason() {
        let nested = (0..130).fold(json!({}), |inner, _| json!({ "not": inner }));
        for bad in [
            json!({ "type": "strin" }),
            json!({ "properties": 7 }),
            json!({ "pattern": "(" }),
            json!({ "$ref": "#/$defs/none" }),
            json!("a text"),
            json!(null),
            nested,
        ] {
            let refused = InputSchema::of(&bad).err();
            assert!(refused.is_some_and(|reason| reason.contains("unusable: ")), "{bad}");
        }
        let long = InputSchema::of(&json!({ "title": "x".repeat(MAX_BYTES) })).err().unwrap();
        assert!(long.contains("65536"), "{long}");
    }

    #[test]
    fn a_schema_refers_to_its_own_parts_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{}").unwrap();
        for elsewhere in
            [format!("file://{}", file.path().display()), "https://example.com/s.json".to_owned()]
        {
            let refused = InputSchema::of(&json!({ "$ref": elsewhere })).err();
            assert!(refused.is_some_and(|reason| reason.contains("its own parts")), "{elsewhere}");
        }
        let own = json!({ "$id": "https://example.com/s.json", "$ref": "#/$defs/n", "$defs": { "n": { "type": "null" } } });
        assert_eq!(InputSchema::of(&own).unwrap().check(&json!(null)), Ok(()));
    }

    #[test]
    fn the_draft_of_a_schema_is_the_one_that_it_names() {
        let older =
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "items": [{ "type": "null" }] });
        assert!(misfit(&older, &json!([1])).starts_with("/0: "));
        assert!(InputSchema::of(&json!({ "$schema": "https://example.com/draft" })).is_err());
    }
}
