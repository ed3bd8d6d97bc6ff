//! The declaration of an MCP tool, step by step.

use std::sync::Arc;

use serde_json::Value;

use super::{Declared, McpLookup, McpServer, McpTool, McpToolError};
use crate::tool::Meaning;
use crate::tool::declared::template::Json;

/// The declaration of an [`McpTool`].
#[derive(Debug)]
#[must_use]
pub struct McpToolBuilder {
    server: McpServer,
    tool: String,
    arguments: Option<Value>,
    reference: Option<String>,
    id: Option<String>,
    output: String,
    errors: Meaning,
    keys: Vec<String>,
    lookup: Option<McpLookup>,
    expected: Vec<(String, Value)>,
}

impl McpToolBuilder {
    pub(super) fn new(server: McpServer, tool: String) -> Self {
        Self {
            server,
            tool,
            arguments: None,
            reference: None,
            id: None,
            output: String::new(),
            errors: Meaning::Unknown,
            keys: Vec::new(),
            lookup: None,
            expected: Vec::new(),
        }
    }

    /// Sets the arguments of the tool. Their texts may have holes; a text that is one hole becomes the value itself. Default:
    /// the input.
    pub fn arguments(mut self, arguments: impl Into<Value>) -> Self {
        self.arguments = Some(arguments.into());
        self
    }

    /// Sends the call's key as the argument at this JSON pointer, for servers that store a reference. The key goes as
    /// `_meta.idempotencyKey` in any case.
    pub fn reference(mut self, pointer: impl Into<String>) -> Self {
        self.reference = Some(pointer.into());
        self
    }

    /// Sets the JSON pointer to the provider's id for the effect, a text or a number in the answer.
    pub fn external_id(mut self, pointer: impl Into<String>) -> Self {
        self.id = Some(pointer.into());
        self
    }

    /// Sets the JSON pointer to the output of the call in the answer. Default: the whole answer: its structured content, or its
    /// text read as JSON, or its text.
    pub fn output(mut self, pointer: impl Into<String>) -> Self {
        self.output = pointer.into();
        self
    }

    /// Sets the meaning of an answer with `isError`. Default: unknown, because a tool may fail after its effect. With
    /// [`Refused`](Meaning::Refused) and [`Later`](Meaning::Later) an error of the protocol says as well that nothing was
    /// done.
    pub fn errors(mut self, meaning: Meaning) -> Self {
        self.errors = meaning;
        self
    }

    /// Sets the fields of the input that make the key of a [`dynamic`](McpTool::dynamic) tool: field names or JSON pointers to
    /// texts or numbers. A request without one of them is refused.
    pub fn key_fields(mut self, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.keys = fields.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the lookup. What it finds is the output of the call.
    pub fn lookup(mut self, lookup: McpLookup) -> Self {
        self.lookup = Some(lookup);
        self
    }

    /// Adds a field by which the lookup recognises the effect: the value at this JSON pointer in the thing that is found
    /// must be this one, which may have holes.
    pub fn expects(mut self, pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        self.expected.push((pointer.into(), value.into()));
        self
    }

    /// Checks the declaration. The server is not asked whether it has the tool.
    ///
    /// # Errors
    /// [`McpToolError`] if a template is malformed, or the lookup calls the tool itself or takes any answer for the effect.
    pub fn build(self) -> Result<McpTool, McpToolError> {
        let wrong = |part| move |detail| McpToolError::Template { part, detail };
        if self.tool.is_empty() {
            return Err(McpToolError::Name { part: "tool" });
        }
        let is_expected = !self.expected.is_empty();
        let expected = self.expected.iter().map(|(pointer, value)| {
            Ok((pointer.clone(), Json::parse(value).map_err(wrong("expected field"))?))
        });
        Ok(McpTool(Arc::new(Declared {
            arguments: self.arguments.as_ref().map(Json::parse).transpose().map_err(wrong("arguments"))?,
            expected: expected.collect::<Result<_, McpToolError>>()?,
            lookup: self.lookup.map(|lookup| lookup.build(&self.tool, is_expected)).transpose()?,
            server: self.server,
            tool: self.tool,
            reference: self.reference,
            id: self.id,
            output: self.output,
            errors: self.errors,
            keys: self.keys,
        })))
    }
}
