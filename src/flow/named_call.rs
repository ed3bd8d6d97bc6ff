//! Calls of tools that are known at run time only.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::call::{Asked, Terms, call};
use super::ctx::Ctx;
use super::failure::Failure;
use super::unregistered::Unregistered;
use crate::ledger::{Approval, Key};
use crate::payload::Payload;

/// A call of a tool by its name, to be awaited. Nothing happens before.
#[must_use = "a call does nothing until it is awaited"]
pub struct NamedCall {
    ctx: Ctx,
    tool: String,
    input: Value,
    id: Option<String>,
    key: Option<Key>,
    terms: Option<Box<Terms>>,
}

impl Ctx {
    /// Calls a registered tool by its name: once, whatever dies in between. For tools that are known at run time only, a
    /// [`DynamicTool`](crate::tool::DynamicTool) for example; [`call`](Self::call) is the typed form, with the same records.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use counterfoil::ledger::{Contract, ContractClass, EffectClass};
    /// use counterfoil::tool::{Done, DynamicTool};
    /// use counterfoil::{Ctx, Engine, Failure, Key};
    /// use serde_json::{Value, json};
    ///
    /// async fn triage(ctx: Ctx, case: String) -> Result<Value, Failure> {
    ///     ctx.call_named("open_ticket", json!({ "case": case })).await
    /// }
    ///
    /// let tool = DynamicTool::new("open_ticket", EffectClass::InternalMutation, Contract::new(ContractClass::ReplaysKey))
    ///     .key(|input| Some(Key::of("open_ticket").target(input["case"].as_str()?)))
    ///     .call(|call, _input| async move { Ok(Done::new(json!({ "ticket": call.key() }))) });
    /// let engine = Engine::in_memory().workflow("triage", 1, triage).dynamic_tool(tool).start().await?;
    /// let ticket = engine.default_tenant().run(triage, "C-17".to_owned()).await?;
    /// assert!(ticket["ticket"].is_string());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Crash
    /// As for [`call`](Self::call).
    pub fn call_named(&self, tool: impl Into<String>, input: Value) -> NamedCall {
        NamedCall { ctx: self.clone(), tool: tool.into(), input, id: None, key: None, terms: None }
    }
}

impl NamedCall {
    /// The id of this call among the calls of its tool: needed for tools without a key of which several are open at once.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }

    /// The key of the call, instead of the tool's own.
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// The decision that the effect needs. It is compared with what is about to be sent, directly before each dispatch.
    pub fn approved_by(mut self, approval: &Approval) -> Self {
        self.terms.get_or_insert_default().approval = Some(approval.clone());
        self
    }

    /// Adds a label: see [`ToolCall::label`](super::ToolCall::label).
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.terms.get_or_insert_default().labels.add(name, value);
        self
    }

    fn asked(self) -> Result<Asked, Failure> {
        let Self { ctx, tool, input, id, key, terms } = self;
        let registry = &ctx.live.core.registry;
        let found = registry.find(&tool).ok_or_else(|| Unregistered::Tool(tool.clone()))?;
        let tool = registry.untyped(found, &Payload::of(&input)?)?;
        Asked::by_code(tool, key, id, terms)
    }
}

impl IntoFuture for NamedCall {
    type Output = Result<Value, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let ctx = self.ctx.clone();
            let asked = ctx.unless_mendable(self.asked()).await?;
            Ok(call(&ctx, asked).await?.response.value()?)
        })
    }
}
