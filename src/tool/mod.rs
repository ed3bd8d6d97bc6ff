//! ③ Tools: what touches the world, and what it declares about itself.
//!
//! A typed tool implements [`Tool`]; what its effect class and its contract demand of it are further traits
//! ([`Reconcile`], [`NeedsApproval`], [`Compensate`]), and the compiler insists on them. A tool that is known only at run time
//! is put together by [`DynamicTool`], and the same rules are checked when it is registered.

mod call;
mod compensate;
pub mod contract;
mod dynamic;
pub mod effect;
mod error;
mod guarantee;
#[cfg(feature = "_reqwest")]
mod http;
pub mod lookup;
mod offer;
mod prepared;
mod registry;
mod schema;
#[cfg(feature = "_sealed")]
mod seals;
mod watched;

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use call::Call;
pub(crate) use call::Noting;
pub(crate) use compensate::Undoing;
pub use compensate::{Compensate, OriginalCall};
pub use dynamic::DynamicTool;
pub(crate) use dynamic::Once;
pub use error::{Accepted, Done, ToolError};
pub(crate) use error::{causes, in_full};
pub use guarantee::Guarantee;
#[cfg(feature = "_reqwest")]
pub(crate) use http::{retry_after, sends_once};
pub use offer::ToolOffer;
pub use prepared::UnstableKey;
pub(crate) use prepared::{Prepared, Typed, canonical, given_or_stable, stable_key, written};
pub(crate) use registry::Unprepared;
pub use registry::{RegisterError, Registry, ToolSpec};
#[cfg(feature = "agent")]
pub(crate) use schema::Schema;
#[cfg(feature = "_sealed")]
pub(crate) use seals::Seals;
#[cfg(feature = "sim")]
pub(crate) use watched::{Touch, Witness};

use crate::id::Tenant;
use crate::ledger::{
    self, ApprovalSubject, BoundFields, Divergence, Key, LookupPolicy, LookupResult, Quota, Retention,
    RetryPolicy, ReviewPolicy, Scopes,
};

/// Something that touches the world.
///
/// ```
/// use counterfoil::{Key, tool::{Call, Done, Tool, ToolError, contract, effect}};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Ticket { case: String, title: String }
///
/// struct OpenTicket;
///
/// impl Tool for OpenTicket {
///     const NAME: &'static str = "open_ticket";
///     type Effect = effect::InternalMutation;
///     type Contract = contract::ReplaysKey; // the tracker honours an idempotency key
///     type Input = Ticket;
///     type Output = String;
///
///     fn key(&self, ticket: &Ticket) -> Option<Key> {
///         Some(Key::of(Self::NAME).target(&ticket.case).operation("open"))
///     }
///
///     async fn call(&self, call: &Call, ticket: &Ticket) -> Result<Done<String>, ToolError> {
///         // POST /tickets with `Idempotency-Key: call.key()` …
///         Ok(Done::new(format!("{} opened as {}", ticket.title, call.key())))
///     }
/// }
/// ```
pub trait Tool: Send + Sync + Sized + 'static {
    /// The operation type: part of every key, so it must never change.
    const NAME: &'static str;
    /// Raise it when the input type changes: a stored request of an older version is read as today's type
    /// before it is called a conflict.
    const INPUT_VERSION: u32 = 1;

    /// What it does to the world: one of [`effect`]'s types.
    type Effect: effect::Effect + effect::Demands<Self>;
    /// What the provider offers: one of [`contract`]'s types.
    type Contract: contract::Contract + contract::Suits<Self::Effect> + contract::Demands<Self>;
    /// The request.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The result.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Which operation this is. Two calls with one key are *one* effect. Without a key, two calls are two
    /// effects, and a call is identified by its place in its run. Never random, never a time: the key is computed
    /// twice, and one that differs is refused before anything is recorded.
    fn key(&self, _input: &Self::Input) -> Option<Key> {
        None
    }

    /// Which fields of the input the key is bound to: all of them, unless it is said. A request under a known key that differs in
    /// another field is answered from the first one's record.
    fn bound(&self) -> BoundFields {
        BoundFields::All
    }

    /// The declaration in full: settle time, key window, account. Starts from the contract type's defaults,
    /// and must keep its class.
    fn contract(&self) -> ledger::Contract {
        <Self::Contract as contract::Contract>::declaration()
    }

    /// The scopes of this call's key and of its lookup at the provider, where they differ from call to call: a credential per tenant, the
    /// account of a customer, a device and a room. It takes the place of the contract's [scope](ledger::Contract::scope). It must
    /// follow from tenant and input alone.
    fn scopes(&self, _tenant: &Tenant, _input: &Self::Input) -> Option<Scopes> {
        None
    }

    /// How often, how soon, and how long an attempt may take. Unless it is said, a call at a [`Blind`](contract::Blind) provider is not
    /// cut off: nobody could find out what became of it.
    fn retry(&self) -> RetryPolicy {
        RetryPolicy::of(&self.contract())
    }

    /// The number, the pauses and the timeout of lookups before a person is asked.
    fn lookups(&self) -> LookupPolicy {
        LookupPolicy::default()
    }

    /// How long its records are kept, and what is left of them; unless it is said, what its effect class asks for.
    fn retention(&self) -> Retention {
        <Self::Effect as effect::Effect>::CLASS.retention()
    }

    /// What its calls may use up: a rate, a breaker, time and cost, alone and with all tools of its provider. Nothing is
    /// limited, and nothing spent on it, unless it is said.
    fn quota(&self) -> Quota {
        Quota::default()
    }

    /// What becomes of a recorded effect that a resumed run does not ask for.
    fn divergence(&self) -> Divergence {
        <Self::Effect as effect::Effect>::CLASS.divergence()
    }

    /// Gets a new credential of the same principal, after a call was refused as [`Unauthorized`](crate::ledger::ErrorKind::Unauthorized).
    /// The call is made once more then; if this fails, or the new credential is refused as well, the call has failed. Another principal
    /// is another [scope](ledger::Contract::scope), not a refresh.
    fn refresh(&self) -> impl Future<Output = Result<(), ToolError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Does it. Called when a `started` record is durable, or when the effect may be repeated.
    ///
    /// Switch off the retries of the provider's own client, or let them send `call.key()`: there is one point
    /// of retry, and it is the executor. Dropping this future (a timeout) leaves the outcome unknown.
    fn call(
        &self,
        call: &Call,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Done<Self::Output>, ToolError>> + Send;
}

/// How to find out what became of a call.
#[diagnostic::on_unimplemented(
    message = "the contract of `{Self}` promises a lookup, but `{Self}` cannot be asked what became of a call",
    label = "`Reconcile` is missing",
    note = "implement `Reconcile` for `{Self}`: look the effect up by `call.key()` or the noted external reference",
    note = "if the provider offers no lookup, declare another contract (`contract::ReplaysKey`, `contract::Blind`)"
)]
pub trait Reconcile: Tool {
    /// Asks the external system, by the noted external reference or by key, over all pages. Must change nothing.
    fn reconcile(
        &self,
        call: &Call,
        input: &Self::Input,
    ) -> impl Future<Output = Result<LookupResult<Self::Output>, ToolError>> + Send;
}

/// What somebody must approve before the effect may go out.
#[diagnostic::on_unimplemented(
    message = "the effect of `{Self}` needs an approval, but `{Self}` does not say of what",
    label = "`NeedsApproval` is missing",
    note = "implement `NeedsApproval` for `{Self}`: return the package (what, for whom, which content) to be approved"
)]
pub trait NeedsApproval: Tool {
    /// The package that is compared with the approved one directly before each dispatch.
    fn package(&self, input: &Self::Input) -> ApprovalSubject;

    /// The people who are asked when a call of a run has an approval that does not count any more: it has expired, was used up, or was of
    /// another content. The run waits for the decision. One person whom the host lets, unless it is said.
    fn review(&self) -> ReviewPolicy {
        ReviewPolicy::default()
    }
}
