//! ③ Tools: the code that touches the world, and its declarations about itself.
//!
//! A typed tool implements [`Tool`]; the demands of its effect class and its contract are further traits
//! ([`Reconcile`], [`NeedsApproval`], [`ApprovalPolicy`], [`Compensate`]), and the compiler insists on them. A tool that is known only at
//! run time is put together by [`DynamicTool`], and the same rules are checked when it is registered.

pub mod approval;
mod call;
#[cfg(feature = "tool-command")]
pub mod command_tool;
mod compensate;
pub mod contract;
#[cfg(any(feature = "tool-http", feature = "tool-command", all(feature = "mcp", feature = "sqlite")))]
pub(crate) mod declared;
mod dynamic;
pub mod effect;
mod error;
mod guarantee;
#[cfg(feature = "_reqwest")]
mod http;
#[cfg(feature = "tool-http")]
pub mod http_tool;
pub mod lookup;
mod offer;
mod once;
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
pub use compensate::{Compensate, OriginalCall};
pub(crate) use compensate::{Undoing, compensation_key};
#[cfg(any(feature = "tool-http", feature = "tool-command", all(feature = "mcp", feature = "sqlite")))]
pub use declared::Meaning;
pub use dynamic::DynamicTool;
#[cfg(all(feature = "mcp", feature = "sqlite"))]
pub(crate) use dynamic::Redacted;
pub use error::{Accepted, Done, ToolError};
pub(crate) use error::{causes, debug_in_full, in_full};
pub use guarantee::Guarantee;
#[cfg(any(feature = "tool-http", all(feature = "mcp-http", feature = "sqlite")))]
pub(crate) use http::sends_once_on_new_connections;
#[cfg(feature = "_reqwest")]
pub(crate) use http::{retry_after, sends_once};
pub use offer::ToolOffer;
pub(crate) use once::Once;
pub use prepared::UnstableKey;
pub(crate) use prepared::{Prepared, Typed, canonical, found, given_or_stable, stable_key, written};
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
    RetryPolicy, ReviewPolicy, Scopes, Verdict,
};

/// A tool: code that touches the world.
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
    /// The version of the input type. Raise it when the type changes: a stored request of an older version is read as
    /// the present type before it is called a conflict.
    const INPUT_VERSION: u32 = 1;

    /// The effect class: one of the types in [`effect`].
    type Effect: effect::Effect + effect::Demands<Self>;
    /// The provider's contract: one of the types in [`contract`].
    type Contract: contract::Contract + contract::Suits<Self::Effect> + contract::Demands<Self>;
    /// The type of the request.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The type of the result.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// The key of the operation. Two calls with one key are *one* effect. Without a key, two calls are two effects, and
    /// a call is identified by its place in its run. Never use random numbers or the time: the key is computed twice,
    /// and one that differs is refused before anything is recorded.
    fn key(&self, _input: &Self::Input) -> Option<Key> {
        None
    }

    /// The fields of the input that the key is bound to. Default: all. A request under a known key that differs only in
    /// other fields is answered from the first one's record.
    fn bound(&self) -> BoundFields {
        BoundFields::All
    }

    /// The contract in full: settle time, key window, account. Start from the contract type's defaults, and keep its
    /// class.
    fn contract(&self) -> ledger::Contract {
        <Self::Contract as contract::Contract>::declaration()
    }

    /// The scopes of this call's key and of its lookup at the provider, if they differ from call to call: a credential
    /// per tenant, the account of a customer, a device and a room. They take the place of the contract's
    /// [scope](ledger::Contract::scope). They must follow from tenant and input alone.
    fn scopes(&self, _tenant: &Tenant, _input: &Self::Input) -> Option<Scopes> {
        None
    }

    /// The retry policy: the number and the pauses of attempts, and the timeout of an attempt. By default a call at a
    /// [`Blind`](contract::Blind) provider is not cut off, because its outcome could not be found out.
    fn retry(&self) -> RetryPolicy {
        RetryPolicy::of(&self.contract())
    }

    /// The number, the pauses and the timeout of lookups before a person is asked.
    fn lookups(&self) -> LookupPolicy {
        LookupPolicy::default()
    }

    /// The retention of the tool's records. Default: that of the effect class.
    fn retention(&self) -> Retention {
        <Self::Effect as effect::Effect>::CLASS.retention()
    }

    /// The limits of the tool's calls: a rate, a breaker, time and cost, alone and with all tools of its provider.
    /// Default: no limits and no price.
    fn quota(&self) -> Quota {
        Quota::default()
    }

    /// The handling of a recorded effect that a resumed run does not request.
    fn divergence(&self) -> Divergence {
        <Self::Effect as effect::Effect>::CLASS.divergence()
    }

    /// Gets a new credential of the same principal, after a call was refused as
    /// [`Unauthorized`](crate::ledger::ErrorKind::Unauthorized). The call is then made once more. If the refresh fails,
    /// or the new credential is refused as well, the call has failed. Another principal is another
    /// [scope](ledger::Contract::scope), not a refresh.
    fn refresh(&self) -> impl Future<Output = Result<(), ToolError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Makes the call. Called once a `started` record is durable, or if the effect may be repeated.
    ///
    /// Switch off the retries of the provider's own client, or let them send `call.key()`: the executor is the only
    /// point of retry. Dropping this future (a timeout) leaves the outcome unknown.
    fn call(
        &self,
        call: &Call,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Done<Self::Output>, ToolError>> + Send;
}

/// The lookup of a tool: finds the outcome of a call.
#[diagnostic::on_unimplemented(
    message = "the contract of `{Self}` promises a lookup, but `{Self}` cannot be asked what became of a call",
    label = "`Reconcile` is missing",
    note = "implement `Reconcile` for `{Self}`: look the effect up by `call.key()` or the noted external reference",
    note = "if the provider offers no lookup, declare another contract (`contract::ReplaysKey`, `contract::Blind`)"
)]
pub trait Reconcile: Tool {
    /// Asks the provider, by the noted external reference or by key, over all pages. Must change nothing.
    fn reconcile(
        &self,
        call: &Call,
        input: &Self::Input,
    ) -> impl Future<Output = Result<LookupResult<Self::Output>, ToolError>> + Send;
}

/// The package that a person must approve before the effect may go out.
#[diagnostic::on_unimplemented(
    message = "the effect of `{Self}` needs an approval, but `{Self}` does not say of what",
    label = "`NeedsApproval` is missing",
    note = "implement `NeedsApproval` for `{Self}`: return the package (what, for whom, which content) to be approved",
    note = "if no person is to approve each call, declare the effect with `approval::Policy` or `approval::None`"
)]
pub trait NeedsApproval: Tool {
    /// The package that is compared with the approved one directly before each dispatch.
    fn package(&self, input: &Self::Input) -> ApprovalSubject;

    /// The people who are asked if the approval of a run's call no longer counts: it has expired, was used up, or was
    /// for another content. The run waits for the decision. Default: one person whom the host lets decide.
    fn review(&self) -> ReviewPolicy {
        ReviewPolicy::default()
    }
}

/// The policy that decides about the calls of a tool whose effect is declared with [`approval::Policy`]. Its verdict is recorded before a call goes out, with the policy's name and
/// version, and stands as long as the call is open.
///
/// ```
/// # use counterfoil::tool::{Call, Done, Tool, ToolError, contract};
/// use counterfoil::ledger::ReviewPolicy;
/// use counterfoil::tool::approval::{self, Verdict};
/// use counterfoil::tool::{ApprovalPolicy, effect};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Mail { to: String, template: String }
///
/// struct SendMail;
///
/// impl Tool for SendMail {
///     const NAME: &'static str = "send_mail";
///     type Effect = effect::Notification<approval::Policy>;
///     // …
/// #     type Contract = contract::ReplaysKey;
/// #     type Input = Mail;
/// #     type Output = u32;
/// #     async fn call(&self, _: &Call, _: &Mail) -> Result<Done<u32>, ToolError> { Ok(Done::new(1)) }
/// }
///
/// impl ApprovalPolicy for SendMail {
///     const POLICY: &'static str = "transactional-mail";
///
///     fn policy(&self, mail: &Mail) -> Verdict {
///         match mail.template.as_str() {
///             "receipt" | "password" => Verdict::Allow,
///             "newsletter" => Verdict::refuse("newsletters go out by the newsletter tool"),
///             _ => Verdict::Ask(ReviewPolicy::by(["ann", "bob"])),
///         }
///     }
/// }
///
/// let engine = counterfoil::Engine::sqlite("agents.db").tool(SendMail);
/// ```
#[diagnostic::on_unimplemented(
    message = "a policy decides about the calls of `{Self}`, but `{Self}` has no policy",
    label = "`ApprovalPolicy` is missing",
    note = "implement `ApprovalPolicy` for `{Self}`: name the policy, and return its verdict on an input from `fn policy`",
    note = "if a person is to approve each call, declare the effect with `approval::Person` and implement `NeedsApproval`"
)]
pub trait ApprovalPolicy: Tool {
    /// The name of the policy, which records keep.
    const POLICY: &'static str;
    /// The version of the policy. Raise it when its verdicts change, so that records tell which one they rest on.
    const POLICY_VERSION: u32 = 1;

    /// Decides about a call. Must be pure: it is called again for each new attempt that has no recorded verdict.
    fn policy(&self, input: &Self::Input) -> Verdict;

    /// The package that people are shown if the policy [asks](Verdict::Ask) them, and that every verdict is bound to.
    /// Default: the whole input.
    fn package(&self, input: &Self::Input) -> ApprovalSubject {
        ApprovalSubject::of(Self::NAME, input)
    }
}
