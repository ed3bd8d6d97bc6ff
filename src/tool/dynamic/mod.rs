//! Tools that are known only at run time: an agent's, an MCP server's, a plain function.

mod redaction;
mod registered;

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

#[cfg(all(feature = "mcp", feature = "sqlite"))]
pub(crate) use self::redaction::Redacted;
use self::redaction::Redaction;
use self::registered::Dynamic;
use super::compensate::{ByFunctions, Compensator, FindFn, OriginalCall, UndoFn};
use super::registry::{Unprepared, kept};
use super::schema::Schema;
use super::{Call, Done, RegisterError, Registry, ToolError, ToolSpec};
use crate::id::{Name, Tenant};
use crate::ledger::{
    ApprovalRule, ApprovalSubject, BoundFields, Compensation, Contract, Divergence, EffectClass, Key,
    LookupOffer, LookupPolicy, LookupResult, PolicyVersion, Quota, Retention, RetryPolicy, ReviewPolicy,
    Scopes, Undone, Verdict,
};

type CallFn = dyn Fn(Call, Value) -> BoxFuture<'static, Result<Done<Value>, ToolError>> + Send + Sync;
type UpgradeFn = dyn Fn(u32, Value) -> Option<Value> + Send + Sync;
type KeyFn = dyn Fn(&Value) -> Option<Key> + Send + Sync;
pub(in crate::tool) type ScopesFn = dyn Fn(&Tenant, &Value) -> Option<Scopes> + Send + Sync;
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
    redaction: Redaction,
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
            redaction: Redaction::default(),
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

    /// Names fields of the input that are not kept, as JSON pointers (RFC 6901). The function that makes the call gets them as they
    /// are. In the record, and before the people who approve, a digest keyed by the tenant takes the place of each: the same
    /// value is still the same request, and another value a conflict. A field that is absent or null stays so.
    ///
    /// A call whose request is read back from the record is not sent, because its fields are unknown: it is looked up, and goes on
    /// when its caller makes it again. The values are removed from the text of an error, too. They are not removed from the
    /// key, which the function for it may make of them.
    ///
    /// An operation that was recorded before its field was named here conflicts with its repetition.
    ///
    /// ```
    /// use counterfoil::ledger::{Contract, ContractClass, EffectClass};
    /// use counterfoil::tool::{Done, DynamicTool};
    /// use counterfoil::{Executor, Key, ToolRequest};
    /// use serde_json::json;
    ///
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// let charge = DynamicTool::new("charge", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey))
    ///     .redact(["/card/number"])
    ///     .redact_output(["/token"])
    ///     .call(|_, input| async move {
    ///         assert_eq!(input["card"]["number"], "4111-1111");
    ///         Ok(Done::new(json!({ "id": "ch_1", "token": "tok_secret" })))
    ///     });
    /// let executor = Executor::in_memory().dynamic_tool(charge).open().await?;
    /// let input = json!({ "cents": 1200, "card": { "number": "4111-1111", "holder": "Ann" } });
    /// let request = ToolRequest::new(Default::default(), "charge", input).key(Key::of("charge").target("case-1"));
    /// let done = executor.execute(request).await?;
    /// let output = done.answer().expect("it is done").response.value()?;
    /// assert_eq!(output["id"], "ch_1");
    /// assert!(!output.to_string().contains("tok_secret"));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn redact<F: Into<String>>(mut self, fields: impl IntoIterator<Item = F>) -> Self {
        redaction::add(&mut self.redaction.input, fields);
        self
    }

    /// Names fields of the output that are not kept, as JSON pointers (RFC 6901). A mark takes the place of each before the output
    /// is recorded, so that nobody but the tool sees them: neither the caller nor a repetition.
    pub fn redact_output<F: Into<String>>(mut self, fields: impl IntoIterator<Item = F>) -> Self {
        redaction::add(&mut self.redaction.output, fields);
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
    pub fn register(self, registry: &mut Registry) -> Result<(), RegisterError> {
        let (tool, compensator) = self.checked()?;
        registry.add(tool, compensator)
    }

    /// Checks the declaration: the tool, and the tool that undoes its effects, if it has one.
    pub(crate) fn checked(mut self) -> Result<(Arc<dyn Unprepared>, Option<Compensator>), RegisterError> {
        if self.effect == EffectClass::Compensation {
            return Err(RegisterError::NotATools { tool: self.name });
        }
        let Some(call) = self.call else {
            return Err(RegisterError::NoCall { tool: self.name });
        };
        if matches!(self.approval, ApprovalRule::Person(_)) && self.functions.package.is_none() {
            return Err(RegisterError::NoPackage { tool: self.name, effect: self.effect });
        }
        if let Some(field) = self.redaction.malformed() {
            return Err(RegisterError::NoFieldToRedact { tool: self.name, field: field.clone() });
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
        let redaction = Arc::new(self.redaction);
        let tool = Dynamic { spec, call, functions, redaction, about: self.about };
        Ok((Arc::new(tool), compensator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{ContractClass, Rate, Throttle};
    use crate::payload::Payload;

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
    fn people_who_approve_are_not_shown_what_is_redacted() {
        let ask = |_: &Value| Verdict::Ask(ReviewPolicy::by(["ann"]));
        let asks = tool(EffectClass::Payment).policy("cards", 1, ask).redact(["/card"]);
        let input = Payload::of(&serde_json::json!({ "card": "4111", "cents": 5 })).unwrap();
        for tool in [
            asks,
            tool(EffectClass::Payment).redact(["/card"]).package(|input| ApprovalSubject::of("pay", input)),
        ] {
            let mut registry = Registry::default();
            tool.register(&mut registry).unwrap();
            let package = registry.find("book").unwrap().prepare(&input).unwrap().package().unwrap();
            let shown = format!("{package:?}");
            assert!(shown.contains("redacted") && !shown.contains("4111"), "{shown}");
        }
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
