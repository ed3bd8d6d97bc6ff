//! Tools that are known only at run time: an agent's, an MCP server's, a plain function.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::compensate::{ByFunctions, Compensator, FindFn, OriginalCall, UndoFn};
use super::prepared::{found, written};
use super::registry::{Unprepared, kept};
use super::schema::Schema;
use super::{Call, Done, Prepared, RegisterError, Registry, ToolError, ToolSpec};
use crate::id::{Name, Tenant};
use crate::ledger::{
    ApprovalRule, ApprovalSubject, BoundFields, Compensation, Contract, Divergence, EffectClass, Key,
    LookupOffer, LookupPolicy, LookupResult, PolicyVersion, Quota, Retention, RetryPolicy, ReviewPolicy,
    Scopes, Undone, Verdict,
};
use crate::payload::{DigestKey, Payload, PayloadError};

type CallFn = dyn Fn(Call, Value) -> BoxFuture<'static, Result<Done<Value>, ToolError>> + Send + Sync;
type UpgradeFn = dyn Fn(u32, Value) -> Option<Value> + Send + Sync;
type KeyFn = dyn Fn(&Value) -> Option<Key> + Send + Sync;
pub(super) type ScopesFn = dyn Fn(&Tenant, &Value) -> Option<Scopes> + Send + Sync;
type VerdictFn = dyn Fn(&Value) -> Verdict + Send + Sync;
type PackageFn = dyn Fn(&Value) -> ApprovalSubject + Send + Sync;
type RefreshFn = dyn Fn() -> BoxFuture<'static, Result<(), ToolError>> + Send + Sync;
type ReconcileFn =
    dyn Fn(Call, Value) -> BoxFuture<'static, Result<LookupResult<Value>, ToolError>> + Send + Sync;

/// A tool that is put together at run time. The rules that types enforce for a [`Tool`](super::Tool) are checked when
/// it is registered, and when it is called.
///
/// ```
/// use counterfoil::tool::{Done, DynamicTool, Registry};
/// use counterfoil::ledger::{Contract, ContractClass, EffectClass};
/// use serde_json::json;
///
/// let mut registry = Registry::default();
/// DynamicTool::new("pay", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey))
///     .call(|call, input| async move {
///         Ok(Done::new(json!({"paid": input["cents"], "under": call.key()})))
///     })
///     .register(&mut registry)?;
///
/// // Nobody could find out what became of this one:
/// let blind = DynamicTool::new("pay_blindly", EffectClass::Payment, Contract::new(ContractClass::Blind));
/// assert!(blind.register(&mut registry).is_err());
/// # Ok::<(), counterfoil::tool::RegisterError>(())
/// ```
#[must_use]
pub struct DynamicTool {
    name: String,
    effect: EffectClass,
    contract: Contract,
    retry: Option<RetryPolicy>,
    lookups: LookupPolicy,
    retention: Retention,
    quota: Quota,
    divergence: Divergence,
    call: Option<Arc<CallFn>>,
    functions: Functions,
    approval: ApprovalRule,
    compensation: Option<Compensation>,
    bound: BoundFields,
    input_version: u32,
    about: Option<About>,
}

/// The description of a tool for an agent's model.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) description: String,
    pub(crate) schema: Schema,
}

#[derive(Clone, Default)]
struct Functions {
    refresh: Option<Arc<RefreshFn>>,
    reconcile: Option<Arc<ReconcileFn>>,
    key: Option<Arc<KeyFn>>,
    upgrade: Option<Arc<UpgradeFn>>,
    package: Option<Arc<PackageFn>>,
    verdict: Option<Arc<VerdictFn>>,
    scopes: Option<Arc<ScopesFn>>,
    undo: Option<Arc<UndoFn>>,
    find_undone: Option<Arc<FindFn>>,
}

impl DynamicTool {
    /// A tool of this name, effect and contract.
    pub fn new(name: impl Into<String>, effect: EffectClass, contract: Contract) -> Self {
        Self {
            name: name.into(),
            effect,
            contract,
            retry: None,
            lookups: LookupPolicy::default(),
            retention: effect.retention(),
            quota: Quota::default(),
            divergence: effect.divergence(),
            call: None,
            functions: Functions::default(),
            approval: ApprovalRule::of(effect),
            compensation: None,
            bound: BoundFields::All,
            input_version: 1,
            about: None,
        }
    }

    /// Sets the function that makes the call.
    pub fn call<F, Fut>(mut self, call: F) -> Self
    where
        F: Fn(Call, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done<Value>, ToolError>> + Send + 'static,
    {
        self.call = Some(Arc::new(move |told, input| Box::pin(call(told, input))));
        self
    }

    /// Sets the function that gets a new credential of the same principal after a call was refused as unauthorized: see
    /// [`Tool::refresh`](super::Tool::refresh).
    pub fn refresh<F, Fut>(mut self, refresh: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ToolError>> + Send + 'static,
    {
        self.functions.refresh = Some(Arc::new(move || Box::pin(refresh())));
        self
    }

    /// Sets the function that finds the outcome of a call. A contract without a lookup gets a strong one.
    pub fn reconcile<F, Fut>(mut self, reconcile: F) -> Self
    where
        F: Fn(Call, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<LookupResult<Value>, ToolError>> + Send + 'static,
    {
        self.functions.reconcile = Some(Arc::new(move |told, input| Box::pin(reconcile(told, input))));
        if self.contract.lookup == LookupOffer::None {
            self.contract.lookup = LookupOffer::Strong;
        }
        self
    }

    /// Sets the function that derives the key of the operation from the input.
    pub fn key(mut self, key: impl Fn(&Value) -> Option<Key> + Send + Sync + 'static) -> Self {
        self.functions.key = Some(Arc::new(key));
        self
    }

    /// Sets the scopes of a call's key and of its lookup at the provider: see [`Tool::scopes`](super::Tool::scopes).
    pub fn scopes(
        mut self,
        scopes: impl Fn(&Tenant, &Value) -> Option<Scopes> + Send + Sync + 'static,
    ) -> Self {
        self.functions.scopes = Some(Arc::new(scopes));
        self
    }

    /// Sets the fields of the input that the key is bound to. Default: all.
    pub fn bound(mut self, bound: BoundFields) -> Self {
        self.bound = bound;
        self
    }

    /// Sets the version of the input. Default: 1. `upgrade` gets the version and the value of an input that an earlier
    /// build stored, and returns the present form; `None` if it cannot. A stored input is upgraded before it is
    /// compared with a new one, looked up or sent again.
    pub fn input_version(
        mut self,
        version: u32,
        upgrade: impl Fn(u32, Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        self.input_version = version;
        self.functions.upgrade = Some(Arc::new(upgrade));
        self
    }

    /// Sets the function that describes what must be approved before a call may go out.
    pub fn package(mut self, package: impl Fn(&Value) -> ApprovalSubject + Send + Sync + 'static) -> Self {
        self.functions.package = Some(Arc::new(package));
        self
    }

    /// Requires an approval for each call, and sets the people who are asked for it: see
    /// [`NeedsApproval`](super::NeedsApproval). A notification and a deletion need an approval even without this
    /// method.
    pub fn review(mut self, policy: ReviewPolicy) -> Self {
        self.approval = ApprovalRule::Person(policy);
        self
    }

    /// Lets a policy of this name and version decide about each call: see [`ApprovalPolicy`](super::ApprovalPolicy).
    /// Unless the tool has a [`package`](Self::package), people whom the policy asks are shown the whole input.
    ///
    /// ```
    /// use counterfoil::ledger::{Contract, ContractClass, EffectClass, ReviewPolicy};
    /// use counterfoil::tool::{Done, DynamicTool, Registry, approval::Verdict};
    /// use serde_json::json;
    ///
    /// DynamicTool::new("refund", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey))
    ///     .policy("small-refunds", 1, |input| match input["cents"].as_u64() {
    ///         Some(0..=5_000) => Verdict::Allow,
    ///         Some(_) => Verdict::Ask(ReviewPolicy::by(["ann", "bob"])),
    ///         None => Verdict::refuse("the refund names no amount"),
    ///     })
    ///     .call(|call, _| async move { Ok(Done::new(json!({ "under": call.key() }))) })
    ///     .register(&mut Registry::default())?;
    /// # Ok::<(), counterfoil::tool::RegisterError>(())
    /// ```
    pub fn policy(
        mut self,
        name: impl Into<String>,
        version: u32,
        policy: impl Fn(&Value) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.approval = ApprovalRule::Policy(PolicyVersion { name: name.into(), version });
        self.functions.verdict = Some(Arc::new(policy));
        self
    }

    /// Lets each call go out without an approval, also those of a notification or a deletion.
    pub fn without_approval(mut self) -> Self {
        self.approval = ApprovalRule::None;
        self
    }

    /// Sets the function that undoes the tool's effects, and the policy for that: see
    /// [`Compensate`](super::Compensate). If effects are undone without asking, surplus effects are as well.
    pub fn compensate<F, Fut>(mut self, policy: Compensation, undo: F) -> Self
    where
        F: Fn(Call, OriginalCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done<Undone>, ToolError>> + Send + 'static,
    {
        self.compensation = Some(policy);
        self.functions.undo = Some(Arc::new(move |told, original| Box::pin(undo(told, original))));
        self
    }

    /// Sets the function that finds out if an effect is undone. Without it the provider counts as one that cannot be
    /// asked.
    pub fn find_compensation<F, Fut>(mut self, find: F) -> Self
    where
        F: Fn(Call, OriginalCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<LookupResult<Undone>, ToolError>> + Send + 'static,
    {
        self.functions.find_undone = Some(Arc::new(move |told, original| Box::pin(find(told, original))));
        self
    }

    /// Sets the number and the pauses of attempts, and their timeout: see [`Tool::retry`](super::Tool::retry).
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The number, the pauses and the timeout of lookups before a person is asked.
    pub fn lookups(mut self, lookups: LookupPolicy) -> Self {
        self.lookups = lookups;
        self
    }

    /// Sets the retention of the tool's records.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the limits of the tool's calls.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota = quota;
        self
    }

    /// Sets the handling of an effect that a resumed run does not request.
    pub fn divergence(mut self, divergence: Divergence) -> Self {
        self.divergence = divergence;
        self
    }

    /// Sets the description for an agent's model, and the JSON Schema of the input, which is an object. A property that
    /// the schema does not name is refused. [`Executor::tools_for_model`](crate::Executor::tools_for_model) lists the
    /// tool.
    pub fn describe(mut self, description: impl Into<String>, schema: Value) -> Self {
        self.about = Some(About { description: description.into(), schema: Schema::given(schema) });
        self
    }

    /// Checks and registers the tool.
    pub fn register(mut self, registry: &mut Registry) -> Result<(), RegisterError> {
        if self.effect == EffectClass::Compensation {
            return Err(RegisterError::NotATools { tool: self.name });
        }
        let Some(call) = self.call else {
            return Err(RegisterError::NoCall { tool: self.name });
        };
        if matches!(self.approval, ApprovalRule::Person(_)) && self.functions.package.is_none() {
            return Err(RegisterError::NoPackage { tool: self.name, effect: self.effect });
        }
        if self.functions.undo.is_some() && !self.effect.leaves_mark() {
            return Err(RegisterError::NothingToUndo { tool: self.name, effect: self.effect });
        }
        if self.functions.undo.is_none() && self.functions.find_undone.is_some() {
            return Err(RegisterError::NoCompensation { tool: self.name });
        }
        if self.functions.reconcile.is_none() {
            self.contract.lookup = LookupOffer::None; // without a function the declared lookup cannot be made
        }
        let retry = self.retry.unwrap_or_else(|| RetryPolicy::of(&self.contract));
        let spec = ToolSpec {
            name: Name::new(&self.name)?,
            effect: self.effect,
            contract: self.contract.settled_for(&retry),
            retry,
            lookups: self.lookups,
            retention: kept(self.effect, self.retention, &retry),
            quota: self.quota,
            divergence: self.divergence,
            input_version: self.input_version,
            bound: self.bound,
            approval: self.approval,
            compensation: self.compensation.clone(),
            any_output: true,
        };
        let (spec, functions) = (Arc::new(spec), self.functions);
        let (undo, find, scopes) =
            (functions.undo.clone(), functions.find_undone.clone(), functions.scopes.clone());
        let compensator = self.compensation.zip(undo).map(|(policy, undo)| {
            let offer = if find.is_some() { LookupOffer::Strong } else { LookupOffer::None };
            Compensator {
                surplus: policy == Compensation::Automatic,
                policy,
                contract: spec.contract.clone().lookup(offer),
                undoes: Arc::new(ByFunctions { undo, find, scopes }),
            }
        });
        registry.add(Arc::new(Dynamic { spec, call, functions, about: self.about }), compensator)
    }
}

struct Dynamic {
    spec: Arc<ToolSpec>,
    call: Arc<CallFn>,
    functions: Functions,
    about: Option<About>,
}

impl Functions {
    /// The present form of an input that was stored with this version.
    fn upgraded(&self, stored: &Payload, version: u32) -> Option<Payload> {
        let value = self.upgrade.as_ref()?(version, stored.value().ok()?)?;
        Payload::of(&value).ok()
    }
}

impl Unprepared for Dynamic {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        Ok(Arc::new(WithValue {
            spec: self.spec.clone(),
            call: self.call.clone(),
            functions: self.functions.clone(),
            input: input.value()?,
            payload: input.clone(),
        }))
    }

    fn prepare_stored(&self, stored: &Payload, version: u32) -> Result<Arc<dyn Prepared>, PayloadError> {
        if version == self.spec.input_version {
            return self.prepare(stored);
        }
        let upgraded = self.functions.upgraded(stored, version).ok_or_else(|| PayloadError::Mismatch {
            expected: "the present version of the tool's input",
            reason: format!("it was stored as version {version}, and the tool does not upgrade it"),
        })?;
        self.prepare(&upgraded)
    }

    fn typed(&self) -> &dyn Any {
        self
    }

    fn about(&self) -> Option<&About> {
        self.about.as_ref()
    }
}

struct WithValue {
    spec: Arc<ToolSpec>,
    call: Arc<CallFn>,
    functions: Functions,
    input: Value,
    payload: Payload,
}

impl Prepared for WithValue {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn key(&self) -> Option<Key> {
        self.functions.key.as_ref()?(&self.input)
    }

    fn package(&self) -> Option<ApprovalSubject> {
        match &self.functions.package {
            Some(package) => Some(package(&self.input)),
            None => self
                .functions
                .verdict
                .as_ref()
                .map(|_| ApprovalSubject::of(self.spec.name.as_str(), &self.input)),
        }
    }

    fn verdict(&self) -> Option<Verdict> {
        Some(self.functions.verdict.as_ref()?(&self.input))
    }

    fn scopes(&self, tenant: &Tenant) -> Option<Scopes> {
        self.functions.scopes.as_ref()?(tenant, &self.input)
    }

    fn request(&self, _: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        Ok((self.payload.clone(), false))
    }

    fn refresh(&self) -> Option<BoxFuture<'_, Result<(), ToolError>>> {
        self.functions.refresh.as_ref().map(|refresh| refresh() as BoxFuture<'_, _>)
    }

    fn rewrite(&self, stored: &Payload, version: u32) -> Option<Payload> {
        self.functions.upgraded(stored, version)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move { written((self.call)(call.clone(), self.input.clone()).await?) })
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        let finding = self.functions.reconcile.as_ref()?(call.clone(), self.input.clone());
        Some(Box::pin(async move { found(finding.await?) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{ContractClass, Rate, Throttle};

    fn tool(effect: EffectClass) -> DynamicTool {
        DynamicTool::new("book", effect, Contract::new(ContractClass::ReplaysKey))
            .call(|_, _| async { Ok(Done::new(Value::Null)) })
    }

    fn undoable(effect: EffectClass) -> DynamicTool {
        tool(effect).compensate(Compensation::Automatic, |_, _| async { Ok(Undone::whole().into()) })
    }

    #[test]
    fn a_compensation_is_registered_or_refused_and_never_forgotten() {
        let mut registry = Registry::default();
        undoable(EffectClass::Payment).register(&mut registry).unwrap();
        assert!(registry.undo_of("book").is_some());

        let reads = undoable(EffectClass::ReadOnly).register(&mut Registry::default());
        assert!(matches!(reads, Err(RegisterError::NothingToUndo { .. })), "{reads:?}");
        let half = tool(EffectClass::Payment)
            .find_compensation(|_, _| async { Ok(LookupResult::Unknown) })
            .register(&mut Registry::default());
        assert!(matches!(half, Err(RegisterError::NoCompensation { .. })), "{half:?}");
    }

    #[test]
    fn a_tool_whose_compensation_is_refused_is_not_kept() {
        let mut registry = Registry::default();
        let taken = DynamicTool { name: "undo book".to_owned(), ..tool(EffectClass::ReadOnly) };
        taken.register(&mut registry).unwrap();
        let slow = Quota::default().provider("books", Throttle::rate(Rate::per_second(1)));
        let refused = undoable(EffectClass::Payment).quota(slow).register(&mut registry);
        assert!(matches!(&refused, Err(RegisterError::Twice { tool }) if tool == "undo book"), "{refused:?}");
        let names: Vec<_> = registry.specs().iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["undo book"]);
        // Nor is the limit that it has declared.
        let fast = Quota::default().provider("books", Throttle::rate(Rate::per_second(9)));
        tool(EffectClass::Payment).quota(fast).register(&mut registry).unwrap();
    }
}
