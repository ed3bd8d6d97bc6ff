//! The state of a gateway, and the way of a call through it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ClientRequest, RequestMetaObject, ServerResult};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};

use super::answer::{About, answer, of_text, passed_on, refused};
use super::approval::Asking;
use super::arguments::{DEFAULTS, given, normalize, take_again};
use super::call::{KEY, request};
use super::catalogue::{Catalogue, Kept, Listed, Listing};
use super::config::McpConfig;
use super::identity::{Called, Rule, identity, within_window};
use super::policy::TIMEOUT;
use super::progress::{Clients, Heard, Waiter};
use super::relay::MADE_AT;
use super::upstream::{Unanswered, Upstream};
use crate::clock::Timestamp;
use crate::exec::{ExecError, Executor, Outcome, RequestError, ToolRequest};
use crate::ledger::{ApprovalError, Key};
use crate::tool::Redacted;

/// The number of times that a server is asked for its lists, if it changes them meanwhile.
const LISTINGS: u32 = 5;

/// The state that all clients of a gateway share.
pub(super) struct Inner {
    pub(super) config: McpConfig,
    pub(super) executor: Executor,
    pub(super) servers: Vec<Arc<Upstream>>,
    pub(super) clients: Arc<Clients>,
    pub(super) catalogue: Arc<Catalogue>,
}

/// A call of a tool that writes.
struct Writing<'c> {
    listing: &'c Listing,
    arguments: Map<String, Value>,
    /// The arguments that equal their defaults.
    defaults: Map<String, Value>,
    again: u32,
    key: Option<&'c str>,
    /// The time at which the client made the call.
    made: Timestamp,
    origin: &'c Origin<'c>,
}

/// Where a request comes from.
pub(super) struct Origin<'c> {
    /// The name of the client.
    pub(super) client: &'c Arc<str>,
    pub(super) context: &'c RequestContext<RoleServer>,
}

impl Origin<'_> {
    fn waiter(&self) -> Waiter {
        let Self { client, context } = self;
        let token = context.meta.get_progress_token();
        Waiter { name: Arc::clone(client), client: context.peer.clone(), token }
    }
}

impl Inner {
    /// The lists of all servers. Those that are not known are asked for, unless the server is left alone.
    pub(super) async fn listed(&self) -> Arc<Listed> {
        let unknown = self.servers.iter().filter(|server| !self.catalogue.knows(server.number));
        join_all(unknown.map(|server| self.list(server))).await;
        self.catalogue.listed()
    }

    /// Asks a server for its lists. Some servers change them while they are asked, as soon as they know what the client can do.
    async fn list(&self, server: &Upstream) {
        for _ in 0..LISTINGS {
            let changes = self.catalogue.changes(server.number);
            let Some(lists) = server.lists().await else { return };
            match self.catalogue.keep(lists, changes) {
                Kept::Outdated => {}
                Kept::Added => return,
                Kept::Renamed => return self.clients.tell_of_changed_lists(),
            }
        }
    }

    /// The tool that clients call by this name. A tool that is known does not wait for servers that are down.
    async fn listing(&self, name: &str) -> Option<Arc<Listing>> {
        match self.catalogue.listed().tool(name) {
            Some(known) => Some(known),
            None => self.listed().await.tool(name),
        }
    }

    /// The error for a tool that no server has. A server that is down may have it.
    async fn unknown(&self, name: &str) -> ErrorData {
        let mut told = format!("there is no tool {name:?}");
        for server in &self.servers {
            if let Some(why) = server.failure().await {
                told = format!("{told}; {why}");
            }
        }
        ErrorData::invalid_params(told, None)
    }

    /// A call of a tool by a client.
    pub(super) async fn call(
        &self,
        name: &str,
        arguments: Option<Map<String, Value>>,
        origin: &Origin<'_>,
    ) -> Result<CallToolResponse, ErrorData> {
        // Before the server is waited for: the window must not pass meanwhile.
        let arrived = self.executor.core().now();
        let Some(listing) = self.listing(name).await else { return Err(self.unknown(name).await) };
        let mut arguments = arguments.unwrap_or_default();
        if listing.passes() {
            return self.pass(&listing, arguments, origin).await;
        }
        let again = match take_again(&mut arguments) {
            Ok(again) => again,
            Err(why) => return Ok(refused(&why).into()),
        };
        let defaults = normalize(&listing.schema, &mut arguments);
        let key = key_of(&origin.context.meta).map_err(|why| ErrorData::invalid_params(why, None))?;
        let made = made_at(&origin.context.meta).map_or(arrived, |made| made.min(arrived));
        let writing = Writing { listing: &listing, arguments, defaults, again, key, made, origin };
        let answered = tokio::select! {
            biased;
            answered = self.write(&writing) => answered,
            // The call itself goes on, and its outcome is recorded.
            () = origin.context.ct.cancelled() => {
                Ok(of_text("The request was cancelled. If the call was sent already, it goes on and is recorded.", true))
            }
        };
        answered
            .map(CallToolResponse::from)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Passes a call that reads on, without a record.
    async fn pass(
        &self,
        listing: &Listing,
        arguments: Map<String, Value>,
        origin: &Origin<'_>,
    ) -> Result<CallToolResponse, ErrorData> {
        let request = request(&json!({ "tool": listing.tool }), arguments.into(), None);
        match self.forward_within(listing.policy.timeout, listing.server, request, origin).await? {
            ServerResult::CallToolResult(result) => Ok(result.into()),
            ServerResult::EmptyResult(_) => Ok(CallToolResult::success(Vec::new()).into()),
            _ => Err(ErrorData::internal_error(
                "the server has answered with something that is no result of a tool",
                None,
            )),
        }
    }

    /// Passes a request on to a server, for as long as a call may take that the file says nothing of.
    pub(super) async fn forward(
        &self,
        server: usize,
        request: ClientRequest,
        origin: &Origin<'_>,
    ) -> Result<ServerResult, ErrorData> {
        self.forward_within(TIMEOUT, server, request, origin).await
    }

    /// Passes a request on to a server. After this time without a sign of progress it is withdrawn.
    async fn forward_within(
        &self,
        limit: Duration,
        server: usize,
        request: ClientRequest,
        origin: &Origin<'_>,
    ) -> Result<ServerResult, ErrorData> {
        let heard = Heard { waiter: Some(origin.waiter()), limit: Some(limit), ..Heard::default() };
        let answered = self.servers[server].request(request, heard, &origin.context.ct).await;
        answered.map(passed_on).map_err(Unanswered::into_error)
    }

    /// Carries a call that writes out as an operation of the ledger.
    async fn write(&self, writing: &Writing<'_>) -> Result<CallToolResult, ExecError> {
        let Writing { listing, arguments, defaults, again, key, made, origin } = writing;
        if let Err(error) = listing.make_known(&self.executor, &self.servers[listing.server]) {
            return Ok(refused(&error.to_string()));
        }
        let (policy, tenant) = (&listing.policy, &self.config.tenant);
        let client = &**origin.client;
        let mut input = json!({ "tool": listing.tool, "arguments": arguments });
        if !defaults.is_empty() {
            input[DEFAULTS] = defaults.clone().into();
        }
        let redacted = Redacted { value: &input["arguments"], fields: &policy.redact };
        let named = if policy.redact.is_empty() {
            Cow::Borrowed(redacted.value) // the tenant's key is neither read nor made for it
        } else {
            let secret = self.executor.core().tenant_key(tenant).await?;
            match redacted.keyed(&secret) {
                Ok(named) => named,
                Err(error) => return Ok(refused(&format!("the arguments cannot be recorded: {error}"))),
            }
        };
        let called = Called { client, tool: &listing.tool, arguments: &named, key: *key, again: *again };
        let (key, rule) = match identity(policy, &called) {
            Ok(identity) => identity,
            Err(why) => return Ok(refused(&why)),
        };
        let key = match self.at(key, rule, (policy.window, *made)).await {
            Err(ExecError::Request(RequestError::Key(error))) => {
                return Ok(refused(&format!("the key of the request cannot be used: {error}")));
            }
            key => key?,
        };
        let rendered = key.render()?;
        let request = ToolRequest::new(tenant.clone(), &policy.operation, input.clone()).key(key);
        let _waiting = self.clients.wait(rendered.to_string(), origin.waiter());
        let mut outcome = self.executor.execute(request.clone()).await?;
        if lacks_approval(&outcome) {
            let fields = policy.redacted();
            let shown = given(&Redacted { value: &input, fields: &fields }.shown());
            let asking = Asking {
                executor: &self.executor,
                tenant,
                policy,
                key: &rendered,
                arguments: &shown,
                client: (client, &origin.context.peer),
            };
            let approval = match asking.approval().await {
                Ok(approval) => approval,
                Err(why) => return Ok(refused(&why)),
            };
            outcome = self.executor.execute(request.approved_by(&approval)).await?;
        }
        Ok(answer(&outcome, &About { key: rendered.as_str(), rule, again: *again }))
    }

    /// The key under which a call goes that was made at this time.
    async fn at(
        &self,
        key: Key,
        rule: Rule,
        (window, made): (Duration, Timestamp),
    ) -> Result<Key, ExecError> {
        key.render()?;
        if rule != Rule::Window {
            return Ok(key);
        }
        within_window(&self.executor, (&self.config.tenant, key), (window, made)).await
    }
}

/// The time at which the client of another process made its call first, before the gateway of that time died.
fn made_at(meta: &RequestMetaObject) -> Option<Timestamp> {
    meta.0.get(MADE_AT).and_then(Value::as_i64).map(Timestamp)
}

/// `idempotencyKey` of a request.
fn key_of(meta: &RequestMetaObject) -> Result<Option<&str>, String> {
    match meta.0.get(KEY) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(key)) if !key.is_empty() => Ok(Some(key)),
        Some(_) => Err(format!("`{KEY}` is one text that is not empty, and the same wherever it is given")),
    }
}

fn lacks_approval(outcome: &Outcome) -> bool {
    let Outcome::Refused(refused) = outcome else { return false };
    matches!(
        **refused,
        RequestError::Approval(ApprovalError::Missing { .. } | ApprovalError::PersonNeeded { .. })
    )
}
