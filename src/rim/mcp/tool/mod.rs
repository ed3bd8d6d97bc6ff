//! A tool of an MCP server that a workflow calls, from a declaration.

mod builder;
mod error;
mod lookup;
mod server;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use builder::McpToolBuilder;
pub use error::McpToolError;
pub use lookup::McpLookup;
pub use server::{McpServer, McpServerBuilder};

use lookup::Looks;

use super::call::{put, request, written};
use super::lookup::{content, text};
use crate::ledger::{Contract, EffectClass, ErrorKind, LookupResult};
use crate::tool::declared::template::{Json, Values};
use crate::tool::declared::{Declaration, dynamic, expected, find, holds_secret, id_at, send};
use crate::tool::{Call, Done, DynamicTool, Meaning, ToolError};

/// A tool of an MCP server: its arguments, the meaning of its errors, and the lookup by another tool of the server.
///
/// The arguments may have holes: `{field}` and `{/json/pointer}` are values of the input, and `{token}` is the call's key.
/// Each attempt sends one request, with the key as `_meta.idempotencyKey`. A sign of progress restarts the attempt's timeout.
///
/// ```
/// use counterfoil::Engine;
/// use counterfoil::ledger::{Contract, ContractClass, EffectClass};
/// use counterfoil::mcp::{McpLookup, McpServer};
/// use serde_json::json;
///
/// let notes = McpServer::program("notes-server").args(["--folder", "/srv/notes"]).build()?;
/// let by_reference = McpLookup::tool("list_notes")
///     .arguments(json!({ "query": "{token}" }))
///     .at("/notes")
///     .matches("/reference", "{token}")
///     .id("/id");
/// let create = notes
///     .tool("create_note")
///     .arguments(json!({ "title": "{title}" }))
///     .reference("/reference")
///     .external_id("/id")
///     .lookup(by_reference)
///     .build()?
///     .dynamic("create_note", EffectClass::InternalMutation, Contract::new(ContractClass::Lookup))?;
/// let engine = Engine::in_memory().dynamic_tool(create);
/// # Ok::<(), counterfoil::mcp::McpToolError>(())
/// ```
///
/// A typed [`Tool`](crate::tool::Tool) holds an `McpTool`, and calls [`send`](Self::send) and [`find`](Self::find).
#[derive(Clone)]
pub struct McpTool(Arc<Declared>);

struct Declared {
    server: McpServer,
    tool: String,
    arguments: Option<Json>,
    reference: Option<String>,
    id: Option<String>,
    output: String,
    errors: Meaning,
    keys: Vec<String>,
    lookup: Option<Looks>,
    expected: Vec<(String, Json)>,
}

impl McpTool {
    /// Sends the request of a call, once.
    ///
    /// # Errors
    /// [`ToolError`], sorted by what may have reached the server. A second request within one attempt, and one after its attempt
    /// has ended, are not sent: the error leaves the outcome of the attempt unknown.
    pub fn send<I, O>(
        &self,
        call: &Call,
        input: &I,
    ) -> impl Future<Output = Result<Done<O>, ToolError>> + Send + use<I, O>
    where
        I: Serialize + ?Sized,
        O: DeserializeOwned,
    {
        send(&self.0, call, input)
    }

    /// Looks for the effect of a call, by the declared lookup.
    ///
    /// # Errors
    /// [`ToolError`] if the lookup cannot be made, or none is declared.
    pub fn find<I, O>(
        &self,
        call: &Call,
        input: &I,
    ) -> impl Future<Output = Result<LookupResult<O>, ToolError>> + Send + use<I, O>
    where
        I: Serialize + ?Sized,
        O: DeserializeOwned + Send,
    {
        find(&self.0, call, input)
    }

    /// The tool under this name, for [`Engine::dynamic_tool`](crate::flow::EngineBuilder::dynamic_tool) or
    /// [`Executor`](crate::Executor): add there what the declaration does not say, such as an approval, a quota or a description
    /// for a model. The declared lookup is added to the contract.
    ///
    /// # Errors
    /// [`McpToolError`] if the name is empty.
    pub fn dynamic(
        &self,
        name: impl Into<String>,
        effect: EffectClass,
        contract: impl Into<Contract>,
    ) -> Result<DynamicTool, McpToolError> {
        let name = name.into();
        if name.is_empty() {
            return Err(McpToolError::Name { part: "tool" });
        }
        Ok(dynamic(&self.0, name, effect, contract.into()))
    }
}

impl Declaration for Declared {
    const NOT_SENT: &'static str = "not sent";

    async fn send(&self, call: &Call, input: &Value) -> Result<Done<Value>, ToolError> {
        if holds_secret(input) {
            return Err(ToolError::refused(
                "not sent: the input holds a `Secret`, which an argument would show",
            ));
        }
        let values = Values { input, token: call.key() };
        let mut arguments = match &self.arguments {
            Some(template) => template.fill(values)?,
            None => input.clone(),
        };
        if !(arguments.is_object() || arguments.is_null()) {
            return Err(ToolError::refused("not sent: the arguments of an MCP tool are an object"));
        }
        if let Some(reference) = &self.reference {
            put(&mut arguments, reference, call.key())?;
        }
        call.claim_send()?;
        let request = request(&json!({ "tool": self.tool }), arguments, Some(call.key()));
        let not_done = matches!(self.errors, Meaning::Refused | Meaning::Later);
        let answer = written(&self.server.0, request, call, not_done).await?;
        let mut said = content(&answer).unwrap_or_else(|| text(&answer).into());
        let external_ref = self.id.as_ref().and_then(|pointer| id_at(&said, pointer));
        if answer["isError"] == true && self.errors != Meaning::Done {
            return Err(match self.errors {
                Meaning::Accepted => ToolError::accepted(external_ref),
                error => ToolError::new(error.kind().unwrap_or(ErrorKind::Unknown), text(&answer)),
            });
        }
        let output = said.pointer_mut(&self.output).map(Value::take).ok_or_else(|| {
            ToolError::unknown(format!(
                "the server answered with success, and its answer has no {:?}",
                self.output
            ))
        })?;
        Ok(Done::found(output, external_ref))
    }

    async fn find<O>(&self, call: &Call, input: &Value) -> Result<LookupResult<O>, ToolError>
    where
        O: DeserializeOwned + Send,
    {
        let unclear = |error: ToolError| ToolError::unknown(error.message);
        let Some(lookup) = &self.lookup else {
            return Err(ToolError::unknown("the MCP tool declares no lookup"));
        };
        let values = Values { input, token: call.key() };
        let expected = expected(&self.expected, values)?;
        let found = lookup.find(&self.server.0, values, expected).await.map_err(unclear)?;
        let misread = |error| ToolError::unknown(format!("what was found is of an unknown form: {error}"));
        found.try_map(serde_json::from_value).map_err(misread)
    }

    fn key_fields(&self) -> &[String] {
        &self.keys
    }

    fn blind_spots(&self) -> Option<&'static [&'static str]> {
        self.lookup.as_ref().map(|_| McpLookup::SIGHT.blind_spots)
    }
}

impl std::fmt::Debug for McpTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Declared { server, tool, .. } = &*self.0;
        f.debug_struct("McpTool").field("server", server).field("tool", tool).finish_non_exhaustive()
    }
}
