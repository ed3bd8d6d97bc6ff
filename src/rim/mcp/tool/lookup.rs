//! The lookup of an MCP tool: a call of another tool of the same server, which reads.

use serde_json::{Map, Value};

use super::McpToolError;
use crate::ledger::{LookupOffer, LookupResult, Sight};
use crate::rim::mcp::call::read;
use crate::rim::mcp::lookup::{Sought, found};
use crate::rim::mcp::upstream::Upstream;
use crate::tool::ToolError;
use crate::tool::declared::template::{Json, Text, Values};
use crate::tool::declared::{Recognition, holds_secret};
use crate::tool::lookup::Expected;

/// A lookup by another tool of the same server, which must only read: the `lookup` of a
/// [gateway's policy](crate::mcp) in Rust.
///
/// The answer is its structured content, or its text read as JSON. Of the candidates in it, those are ours that have all values
/// of [`matches`](Self::matches). None is *not found*. A lookup needs `matches`, [`contains`](Self::contains), a hole in its
/// [arguments](Self::arguments), or a tool with [expected fields](super::McpToolBuilder::expects): any answer would count as the effect
/// otherwise. A list of candidates needs one of these that is more than a value of the input in the arguments. An answer with `isError`,
/// one in which the place of the effect is missing, or no answer leaves the call ambiguous.
#[derive(Clone, Debug)]
#[must_use]
pub struct McpLookup {
    tool: String,
    arguments: Value,
    at: String,
    matches: Vec<(String, Value)>,
    contains: Option<String>,
    id: Option<String>,
    error_is_missing: bool,
}

impl McpLookup {
    /// The sight of this lookup.
    pub const SIGHT: Sight = Sight {
        by: "another tool of the MCP server, by client token",
        offer: LookupOffer::Strong,
        settle: std::time::Duration::from_mins(1),
        outlives_sender: true,
        knows: &["what the server's tool shows under our token, at the moment of the lookup"],
        blind_spots: &[
            "a server whose reads lag behind its writes: declare LookupOffer::Eventual after the sight",
            "a server that shows a part of its list",
            "effects that were deleted, archived or moved since",
        ],
    };

    /// A lookup by this tool.
    pub fn tool(name: impl Into<String>) -> Self {
        Self {
            tool: name.into(),
            arguments: Value::Object(Map::new()),
            at: String::new(),
            matches: Vec::new(),
            contains: None,
            id: None,
            error_is_missing: false,
        }
    }

    /// Sets the arguments of the lookup, whose texts may have holes: `{token}` is the call's key. Default: none.
    pub fn arguments(mut self, arguments: impl Into<Value>) -> Self {
        self.arguments = arguments.into();
        self
    }

    /// Sets the JSON pointer to the effect, or to a list of candidates, in the answer. Default: the whole answer. `null` or an
    /// empty list there is *not found*.
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.at = pointer.into();
        self
    }

    /// Adds a value that our effect has at this JSON pointer. It may have holes.
    pub fn matches(mut self, pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        self.matches.push((pointer.into(), value.into()));
        self
    }

    /// Sets a text that the answer must contain, for servers that answer with a text. It may have holes.
    pub fn contains(mut self, text: impl Into<String>) -> Self {
        self.contains = Some(text.into());
        self
    }

    /// Sets the JSON pointer to the effect's id in a candidate, a text or a number.
    pub fn id(mut self, pointer: impl Into<String>) -> Self {
        self.id = Some(pointer.into());
        self
    }

    /// Declares that an answer with `isError` says that there is no such effect.
    pub fn missing_is_error(mut self) -> Self {
        self.error_is_missing = true;
        self
    }

    /// The lookup of a tool with this name. `is_expected`: the effect is recognised by fields that the tool expects.
    pub(super) fn build(self, writes: &str, is_expected: bool) -> Result<Looks, McpToolError> {
        if self.tool.is_empty() || self.tool == writes {
            return Err(McpToolError::Lookup { tool: writes.to_owned() });
        }
        let wrong = |detail| McpToolError::Template { part: "lookup", detail };
        let arguments = Json::parse(&self.arguments).map_err(wrong)?;
        let recognition = Recognition {
            compares: is_expected
                || !self.matches.is_empty()
                || self.contains.as_ref().is_some_and(|text| !text.is_empty()),
            asks_by_key: arguments.has_token(),
            asks_for_one: arguments.has_holes(),
        };
        if !recognition.suffices() {
            return Err(wrong(Recognition::NONE.to_owned()));
        }
        let matches = self.matches.iter().map(|(pointer, value)| Ok((pointer.clone(), Json::parse(value)?)));
        Ok(Looks {
            arguments,
            tells_apart: recognition.tells_apart(),
            matches: matches.collect::<Result<_, _>>().map_err(wrong)?,
            contains: self.contains.as_deref().map(Text::parse).transpose().map_err(wrong)?,
            declared: self,
        })
    }
}

/// A lookup that was checked.
pub(super) struct Looks {
    declared: McpLookup,
    arguments: Json,
    matches: Vec<(String, Json)>,
    contains: Option<Text>,
    tells_apart: bool,
}

impl Looks {
    pub(super) async fn find(
        &self,
        server: &Upstream,
        values: Values<'_>,
        expected: Expected,
    ) -> Result<LookupResult<Value>, ToolError> {
        let McpLookup { tool, at, id, error_is_missing, .. } = &self.declared;
        let matches = self.matches.iter().map(|(pointer, value)| Ok((pointer.clone(), value.fill(values)?)));
        let sought = Sought {
            error_is_missing: *error_is_missing,
            contains: self.contains.as_ref().map(|text| text.fill(values)).transpose()?,
            at: at.clone(),
            matches: matches.collect::<Result<_, ToolError>>()?,
            id: id.clone(),
            expected,
            tells_apart: self.tells_apart,
        };
        let arguments = self.arguments.fill(values)?;
        if holds_secret(&arguments) || sought.matches.iter().any(|(_, value)| holds_secret(value)) {
            // An input that was read back from its record has digests for secrets, and no server knows a digest.
            return Ok(LookupResult::Unknown);
        }
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::unknown("the arguments of the lookup are no object"));
        };
        match read(server, tool, arguments).await? {
            Some(answer) => Ok(found(&sought, &answer, Value::clone)),
            None => Ok(LookupResult::Unknown),
        }
    }
}
