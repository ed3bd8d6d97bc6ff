//! Undoing an effect: what a tool says about it, and the operation that it is.
//!
//! A compensation is an operation of its own: with a record, a key derived from that of the forward call, and the same
//! rules for an unknown outcome. Its tool is an [`Undo`], registered beside the one that it undoes.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dynamic::ScopesFn;
use super::effect::IsUndoable;
use super::prepared::written;
use super::{Call, Done, Prepared, Tool, ToolError, ToolSpec, registry::Unprepared};
use crate::id::{IdError, Name, Tenant};
use crate::ledger::{
    BoundFields, Compensation, Contract, Divergence, EffectClass, Key, LookupOffer, LookupResult,
    OperationKey, Quota, Scopes, Undone,
};
use crate::payload::{DigestKey, Payload, PayloadError};

/// How to undo what a tool did. The tool says of its effect that it is [`Undoable`](super::effect::Undoable), and its effects
/// are undone when the run that owns them fails or is cancelled, the last one first.
///
/// ```
/// use counterfoil::ledger::{LookupResult, Undone};
/// use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Tool, ToolError, contract, effect};
/// use counterfoil::Key;
///
/// struct Charge;
///
/// impl Tool for Charge {
///     const NAME: &'static str = "charge";
///     type Effect = effect::Undoable<effect::Payment>;
///     type Contract = contract::ReplaysKey;
///     type Input = u64; // cents
///     type Output = String; // the charge's id
///
///     fn key(&self, _: &u64) -> Option<Key> {
///         Some(Key::of(Self::NAME).target("order_7").operation("pay"))
///     }
///
///     async fn call(&self, call: &Call, cents: &u64) -> Result<Done<String>, ToolError> {
///         Ok(Done::new(format!("ch_{cents}_{}", call.key())))
///     }
/// }
///
/// impl Compensate for Charge {
///     async fn compensate(
///         &self,
///         call: &Call,
///         forward: &OriginalCall<u64, String>,
///     ) -> Result<Done<Undone>, ToolError> {
///         // POST /refunds with `Idempotency-Key: call.key()`. After a crash the forward key may be all there is.
///         let charge = forward.output().cloned().unwrap_or_else(|| format!("by reference {}", forward.key()));
///         Ok(Undone::whole().detail(format!("{charge} refunded under {}", call.key())).into())
///     }
///
///     async fn find_compensation(
///         &self,
///         _: &Call,
///         _: &OriginalCall<u64, String>,
///     ) -> Result<LookupResult<Undone>, ToolError> {
///         Ok(LookupResult::Unknown) // this provider offers no lookup: it replays keys
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the effect of `{Self}` is undoable, but `{Self}` does not say how it is undone",
    label = "`Compensate` is missing",
    note = "implement `Compensate` for `{Self}`, or declare the effect without `effect::Undoable`"
)]
pub trait Compensate: Tool<Effect: IsUndoable, Output: Sync> {
    /// When its effects are undone.
    fn policy(&self) -> Compensation {
        Compensation::Automatic
    }

    /// What the provider offers for the undoing: the same as for the call, unless it is said.
    ///
    /// Where it offers a lookup and tells no copies apart by key, each undoing is preceded by
    /// [`find_compensation`](Self::find_compensation): what somebody else has undone counts as undone, and nothing is sent. With
    /// [`look_first`](Contract::look_first) also where copies are told apart: what a person does by hand has another key.
    fn compensation_contract(&self) -> Contract {
        self.contract()
    }

    /// The effect happened more than once, and the lookup names all of them: the first is kept, and the others are undone
    /// if this says so. Otherwise a person decides. Unless it is said, what is undone without asking.
    fn undoes_surplus(&self) -> bool {
        self.policy() == Compensation::Automatic
    }

    /// Undoes it. `call` has a key of its own: never that of the forward call, which the provider knows already.
    fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<Self::Input, Self::Output>,
    ) -> impl Future<Output = Result<Done<Undone>, ToolError>> + Send;

    /// Asks the external system whether it is undone: by this compensation or by anybody else. Asked if the contract offers a
    /// lookup: when the outcome of a compensation is unknown, or was refused as done before, and before it is sent where a second
    /// undoing would not collide with that of somebody else. Of a [surplus](OriginalCall::is_surplus) effect it says whether that one is
    /// undone.
    fn find_compensation(
        &self,
        call: &Call,
        forward: &OriginalCall<Self::Input, Self::Output>,
    ) -> impl Future<Output = Result<LookupResult<Undone>, ToolError>> + Send;
}

/// The call that is to be undone, as far as it is known: after a crash its key may be all there is.
#[derive(Clone, Debug)]
pub struct OriginalCall<I = Value, O = Value> {
    key: String,
    operation_key: OperationKey,
    external_ref: Option<String>,
    surplus: bool,
    input: Option<I>,
    output: Option<O>,
}

impl<I, O> OriginalCall<I, O> {
    /// The key under which it went downstream: the same text that its `call.key()` was.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The readable key.
    pub fn operation_key(&self) -> &OperationKey {
        &self.operation_key
    }

    /// The provider's own id of the effect to be undone, if it is known.
    pub fn external_ref(&self) -> Option<&str> {
        self.external_ref.as_deref()
    }

    /// It happened more than once, and only the effect of this external id is to be undone: the first one is kept.
    pub const fn is_surplus(&self) -> bool {
        self.surplus
    }

    /// What it was called with: absent if it held a secret, is too large to be carried along, or no longer parses.
    pub const fn input(&self) -> Option<&I> {
        self.input.as_ref()
    }

    /// What it gave back; of a [surplus](Self::is_surplus) effect, what the lookup or the late answer has shown of that one. Absent for the
    /// same reasons, and if somebody decided what it was.
    pub const fn output(&self) -> Option<&O> {
        self.output.as_ref()
    }
}

/// The request of a compensation, as its record holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undoing {
    /// The forward call's key.
    pub(crate) key: String,
    /// The same as it went downstream: a later build of the tool may make it in another way.
    pub(crate) wire_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) external_ref: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) surplus: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Value>,
}

impl Undoing {
    /// What the key of a compensation is bound to.
    fn bound() -> BoundFields {
        BoundFields::only(1, ["/key", "/wire_key"])
    }

    /// The key of the compensation: it says what it undoes.
    fn own_key(&self, tool: &str) -> Key {
        let key = Key::of(tool).target(&self.key);
        match &self.external_ref {
            Some(effect) if self.surplus => key.operation(effect),
            _ => key,
        }
        .hashed()
    }

    fn forward<I: DeserializeOwned, O: DeserializeOwned>(&self) -> OriginalCall<I, O> {
        OriginalCall {
            key: self.wire_key.clone(),
            operation_key: OperationKey::stored(self.key.as_str()),
            external_ref: self.external_ref.clone(),
            surplus: self.surplus,
            input: self.input.as_ref().and_then(|value| I::deserialize(value).ok()),
            output: self.output.as_ref().and_then(|value| O::deserialize(value).ok()),
        }
    }
}

/// What undoes, its types forgotten.
pub(crate) trait Undoes: Send + Sync {
    /// What the provider scopes it to: as the forward call.
    fn scopes(&self, tenant: &Tenant, undoing: &Undoing) -> Option<Scopes>;
    fn undo<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<Done<Undone>, ToolError>>;
    fn find<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<LookupResult<Undone>, ToolError>>;
}

/// What undoes the effects of a tool, and when. The tool's types are forgotten.
pub struct Compensator {
    pub(super) policy: Compensation,
    pub(super) contract: Contract,
    pub(super) surplus: bool,
    pub(super) undoes: Arc<dyn Undoes>,
}

impl Compensator {
    /// As a typed tool says it.
    pub(super) fn of<T: Compensate>(tool: &Arc<T>) -> Self {
        Self {
            policy: tool.policy(),
            contract: tool.compensation_contract(),
            surplus: tool.undoes_surplus(),
            undoes: Arc::new(ByTool { tool: tool.clone() }),
        }
    }
}

/// A typed tool that can undo.
struct ByTool<T> {
    tool: Arc<T>,
}

impl<T: Compensate> Undoes for ByTool<T> {
    fn scopes(&self, tenant: &Tenant, undoing: &Undoing) -> Option<Scopes> {
        let input = T::Input::deserialize(undoing.input.as_ref()?).ok()?;
        self.tool.scopes(tenant, &input)
    }

    fn undo<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<Done<Undone>, ToolError>> {
        Box::pin(async move { self.tool.compensate(call, &undoing.forward()).await })
    }

    fn find<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<LookupResult<Undone>, ToolError>> {
        Box::pin(async move { self.tool.find_compensation(call, &undoing.forward()).await })
    }
}

pub(super) type UndoFn =
    dyn Fn(Call, OriginalCall) -> BoxFuture<'static, Result<Done<Undone>, ToolError>> + Send + Sync;
pub(super) type FindFn =
    dyn Fn(Call, OriginalCall) -> BoxFuture<'static, Result<LookupResult<Undone>, ToolError>> + Send + Sync;

/// Functions that undo, for a tool that is known only at run time.
pub(super) struct ByFunctions {
    pub(super) undo: Arc<UndoFn>,
    pub(super) find: Option<Arc<FindFn>>,
    pub(super) scopes: Option<Arc<ScopesFn>>,
}

impl Undoes for ByFunctions {
    fn scopes(&self, tenant: &Tenant, undoing: &Undoing) -> Option<Scopes> {
        self.scopes.as_ref()?(tenant, undoing.input.as_ref()?)
    }

    fn undo<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<Done<Undone>, ToolError>> {
        (self.undo)(call.clone(), undoing.forward())
    }

    fn find<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<LookupResult<Undone>, ToolError>> {
        match &self.find {
            Some(find) => find(call.clone(), undoing.forward()),
            None => Box::pin(async { Ok(LookupResult::Unknown) }),
        }
    }
}

/// The tool of the compensations of another tool.
pub(crate) struct Undo {
    pub(super) spec: Arc<ToolSpec>,
    pub(super) undoes: Arc<dyn Undoes>,
    pub(crate) surplus: bool,
}

impl Undo {
    /// The name of the tool that undoes another.
    pub(super) fn name(tool: &str) -> String {
        format!("undo {tool}")
    }

    /// As it is registered beside the tool of this declaration.
    pub(super) fn of(forward: &ToolSpec, compensator: Compensator) -> Result<Self, IdError> {
        let Compensator { contract, surplus, undoes, .. } = compensator;
        let spec = ToolSpec {
            name: Name::new(Self::name(forward.name.as_str()))?,
            effect: EffectClass::Compensation,
            contract: contract.settled_for(&forward.retry),
            retry: forward.retry,
            lookups: forward.lookups,
            retention: forward.retention,
            quota: Quota { provider: forward.quota.provider.clone(), ..Quota::default() },
            divergence: Divergence::Adopt,
            input_version: 1,
            bound: Undoing::bound(),
            review: None,
            compensation: None,
            any_output: true,
        };
        Ok(Self { spec: Arc::new(spec), undoes, surplus })
    }

    /// With what it is to undo.
    pub(crate) fn with(&self, undoing: Undoing) -> Result<Arc<dyn Prepared>, PayloadError> {
        let payload = Payload::of(&undoing)?;
        Ok(Arc::new(Ready { spec: self.spec.clone(), undoes: self.undoes.clone(), undoing, payload }))
    }
}

impl Unprepared for Undo {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        self.with(input.decode()?)
    }

    fn typed(&self) -> &dyn Any {
        self
    }
}

/// A compensation, ready to be carried out.
struct Ready {
    spec: Arc<ToolSpec>,
    undoes: Arc<dyn Undoes>,
    undoing: Undoing,
    payload: Payload,
}

impl Prepared for Ready {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn key(&self) -> Option<Key> {
        Some(self.undoing.own_key(self.spec.name.as_str()))
    }

    fn scopes(&self, tenant: &Tenant) -> Option<Scopes> {
        self.undoes.scopes(tenant, &self.undoing)
    }

    fn request(&self, _: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        Ok((self.payload.clone(), false))
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move {
            let done = self.undoes.undo(call, &self.undoing).await?;
            let output = written(&done.output)?;
            Ok(done.map(|_| output))
        })
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        if self.spec.contract.lookup == LookupOffer::None {
            return None;
        }
        let finding = self.undoes.find(call, &self.undoing);
        Some(Box::pin(async move { finding.await?.try_map(|undone| written(&undone)) }))
    }
}
