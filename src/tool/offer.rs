//! The description of a tool for a model.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// The description of a tool for a model.
///
/// It is serialised as an entry of the `tools` array of a chat completions request, which most servers take. Other
/// interfaces want the same three values in a form of their own:
///
/// ```
/// use counterfoil::tool::ToolOffer;
/// use serde_json::json;
///
/// fn for_messages(offer: &ToolOffer) -> serde_json::Value {
///     json!({ "name": offer.name, "description": offer.description, "input_schema": offer.schema })
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOffer {
    /// The name of the tool.
    pub name: String,
    /// The purpose of the tool, in words for the model.
    pub description: String,
    /// The JSON Schema of the tool's arguments, which is the schema of an object.
    pub schema: Value,
}

impl Serialize for ToolOffer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, description, schema } = self;
        let function = json!({ "name": name, "description": description, "parameters": schema });
        json!({ "type": "function", "function": function }).serialize(serializer)
    }
}
