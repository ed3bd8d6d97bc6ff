//! Models, and a model call as an operation of the ledger.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;

use super::bounds::bounded;
use super::message::{Prompt, Reply};
use crate::flow::{EngineBuilder, Workflow};
use crate::id::Name;
use crate::ledger::{Backoff, Contract, ContractClass, EffectClass, ErrorKind, Key, Quota, RetryPolicy};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::tool::{Call, Done, Prepared, RegisterError, ToolError, ToolSpec, Unprepared};

/// A language model, local or remote.
///
/// ```
/// use counterfoil::agent::{Message, Model, Prompt, Reply};
/// use counterfoil::tool::{Call, ToolError};
///
/// /// Says the last thing that it heard.
/// struct Echo;
///
/// impl Model for Echo {
///     async fn complete(&self, _: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
///         Ok(match prompt.messages.last() {
///             Some(Message::User { text }) => Reply::text(text),
///             _ => Reply::text("…"),
///         })
///     }
/// }
/// ```
pub trait Model: Send + Sync + 'static {
    /// Asks the model once. The kind of its error decides whether the model is asked again, and after which delay: a
    /// [`retry_after`](ToolError::retry_after) is honoured. Implementations must not retry.
    fn complete(&self, call: &Call, prompt: &Prompt)
    -> impl Future<Output = Result<Reply, ToolError>> + Send;

    /// The retry policy of the model calls. Default: eight attempts, backoff 500 ms doubling to 30 s, timeout five
    /// minutes for each attempt.
    fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            attempts: 8,
            backoff: Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(30) },
            attempt_timeout: Duration::from_mins(5),
            ..RetryPolicy::default()
        }
    }

    /// The limits of the model's calls: a rate, a breaker and a price for each attempt, alone and together with all
    /// models and tools of its provider. Default: no limits. A priced call is recorded before it is made, so that a
    /// crash returns no budget. The price is an estimate: it is reserved before an attempt, and replaced by the
    /// reply's [cost](Self::cost).
    fn quota(&self) -> Quota {
        Quota::default()
    }

    /// The actual cost of a reply, in the unit of the price in [`quota`](Self::quota). Default: the
    /// [cost in millionths](super::Usage::cost_micros) if the unit is `"micros"`, the tokens of both directions if it
    /// is `"token"`, and the estimated price otherwise.
    fn cost(&self, reply: &Reply) -> Option<u64> {
        let usage = reply.usage;
        match &*self.quota().price?.unit {
            "micros" => Some(usage.cost_micros),
            "token" => Some(usage.input_tokens.saturating_add(usage.output_tokens)),
            _ => None,
        }
    }
}

impl EngineBuilder {
    /// Registers a model under a route: the name by which agents request the model, and under which its calls are
    /// recorded. The model behind a route may change; the route itself must stay.
    pub fn model(self, route: &str, model: impl Model) -> Self {
        let name = operation(route);
        let (retry, quota) = (model.retry(), model.quota());
        let model: Arc<dyn AnyModel> = Arc::new(model);
        self.with(|executor| {
            executor.register(|registry| {
                let spec = Arc::new(spec(&name, retry, quota)?);
                registry.add(Arc::new(Route { spec, model }), None)
            })
        })
    }
}

impl Workflow {
    /// A model that the workflow asks. Needed if the workflow names the tools that it [calls](Self::calls).
    pub fn calls_model(self, route: &str) -> Self {
        self.calls_named(operation(route))
    }
}

const PREFIX: &str = "model/";

/// The operation type of a route's calls.
pub(super) fn operation(route: &str) -> String {
    format!("{PREFIX}{route}")
}

/// True if this is the operation type of a model.
pub(super) fn is_model(operation: &str) -> bool {
    operation.starts_with(PREFIX)
}

fn spec(name: &str, retry: RetryPolicy, quota: Quota) -> Result<ToolSpec, RegisterError> {
    let blind = Contract::new(ContractClass::Blind); // a model call may be made again without harm
    let spec = ToolSpec::of(Name::new(name)?, EffectClass::ModelCall, blind, retry);
    Ok(ToolSpec { any_output: false, quota, ..spec })
}

/// A model behind a trait object.
trait AnyModel: Send + Sync {
    fn complete<'a>(&'a self, call: &'a Call, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ToolError>>;
    fn cost(&self, reply: &Reply) -> Option<u64>;
}

impl<M: Model> AnyModel for M {
    fn complete<'a>(&'a self, call: &'a Call, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(Model::complete(self, call, prompt))
    }

    fn cost(&self, reply: &Reply) -> Option<u64> {
        Model::cost(self, reply)
    }
}

/// A registered model.
#[derive(Clone)]
pub(super) struct Route {
    spec: Arc<ToolSpec>,
    model: Arc<dyn AnyModel>,
}

impl Route {
    /// A call of the model with this prompt.
    pub(super) fn asking(&self, place: &Place<'_>, prompt: Prompt) -> Result<Asking, PayloadError> {
        let messages = Payload::of(&prompt.messages)?.digest();
        let request = Payload::of(&json!({
            "agent": place.agent,
            "turn": place.turn,
            "prompt_version": place.prompt_version,
            "messages_sha256": crate::payload::hex(&messages.0),
        }))?;
        Ok(Asking { route: self.clone(), prompt: Some(prompt), request })
    }
}

impl Unprepared for Route {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, request: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        // A call from a record. The run holds its conversation, so this call can be settled and not sent.
        Ok(Arc::new(Asking { route: self.clone(), prompt: None, request: request.clone() }))
    }

    fn check_output(&self, output: &Payload) -> Result<(), PayloadError> {
        output.decode::<Reply>().map(drop)
    }

    fn typed(&self) -> &dyn Any {
        self
    }
}

/// The position of a model call in a run.
pub(super) struct Place<'a> {
    /// The name of the agent.
    pub(super) agent: &'a str,
    /// The turn of the agent, from 0.
    pub(super) turn: u32,
    /// The version of the prompt, as its author counts.
    pub(super) prompt_version: &'a str,
}

/// One call of a model. The record holds not the conversation but its digest: the run can rebuild the conversation
/// from its input and its records, and otherwise each turn would record the whole conversation again.
pub(super) struct Asking {
    route: Route,
    prompt: Option<Prompt>,
    request: Payload,
}

impl Asking {
    /// The key of (run, step, input hash, prompt version, model route): all but run and route are in the request.
    pub(super) fn key(&self, ctx: &crate::flow::Ctx) -> Key {
        let request = crate::payload::hex(&self.request.digest().0);
        Key::in_run(self.route.spec.name.as_str(), ctx.run_name(), ctx.scope(), request)
    }
}

impl Prepared for Asking {
    fn spec(&self) -> &ToolSpec {
        &self.route.spec
    }

    fn request(&self, _: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        Ok((self.request.clone(), false))
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move {
            let Some(prompt) = &self.prompt else {
                return Err(ToolError::new(
                    ErrorKind::Validation,
                    "a model is asked by an agent of a run only",
                ));
            };
            let reply = bounded(self.route.model.complete(call, prompt).await?);
            let cost = self.route.model.cost(&reply);
            let reply = Payload::of(&reply).map_err(|e| {
                ToolError::new(ErrorKind::Unknown, format!("the reply cannot be recorded: {e}"))
            })?;
            Ok(Done { cost, ..Done::new(reply) })
        })
    }
}
