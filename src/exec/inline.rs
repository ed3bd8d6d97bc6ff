//! An effect that is declared where it is carried out: under the rules of a registered tool, without a type of its own.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::executor::Executor;
use super::operation::{Asker, Requested};
use super::orphans;
use super::outcome::{CallError, ExecError, Outcome};
use super::request::Wait;
use super::request_error::RequestError;
use crate::id::{Name, Tenant};
use crate::ledger::{
    Approval, ApprovalRule, ApprovalSubject, Contract, ContractClass, EffectClass, ErrorKind, Key, KeyError,
    LookupOffer, LookupPolicy, LookupResult, PolicyVersion, Retention, RetryPolicy, Verdict,
};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::store::Labels;
use crate::tool::{Call, Done, Prepared, ToolError, ToolSpec, Unprepared, canonical, found, written};

type LookupFn<A, T> = dyn Fn(Call, A) -> BoxFuture<'static, Result<LookupResult<T>, ToolError>> + Send + Sync;
type VerdictFn<A> = dyn Fn(&A) -> Verdict + Send + Sync;
type RunFn<A, T> = dyn Fn(Call, A) -> BoxFuture<'static, Result<Done<T>, ToolError>> + Send + Sync;

/// An effect that is declared where it is carried out: begun by [`Executor::effect`], carried out by [`run`](Self::run).
#[must_use = "an effect does nothing until it is run"]
pub struct InlineEffect<A, T> {
    executor: Executor,
    tenant: Tenant,
    key: Key,
    args: A,
    class: EffectClass,
    contract: Option<Contract>,
    retry: Option<RetryPolicy>,
    lookups: LookupPolicy,
    retention: Option<Retention>,
    approval: Option<(ApprovalSubject, Approval)>,
    rule: Option<ApprovalRule>,
    verdict: Option<Arc<VerdictFn<A>>>,
    lookup: Option<Arc<LookupFn<A, T>>>,
    labels: Labels,
}

impl Executor {
    /// An effect that is declared where it is carried out. It has the ledger and the rules of a registered [`Tool`](crate::tool::Tool):
    /// it is done once under its key, it is looked up before it is sent again, and where nobody knows, a person is asked. The key's kind
    /// is the name of the operation, as a tool's name is.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use counterfoil::ledger::LookupResult;
    /// use counterfoil::tool::{Done, ToolError, contract};
    /// use counterfoil::{Executor, Key, Tenant};
    ///
    /// # #[derive(Clone)]
    /// # struct Tracker;
    /// # impl Tracker {
    /// #     async fn by_reference(&self, _: &str) -> Result<Option<u64>, ToolError> { Ok(None) }
    /// #     async fn open(&self, _: &str, _: &str) -> Result<u64, ToolError> { Ok(17) }
    /// # }
    /// # let tracker = Tracker;
    /// let executor = Executor::in_memory().open().await?;
    /// let (finding, opening) = (tracker.clone(), tracker);
    /// let ticket: u64 = executor
    ///     .effect(&Tenant::default(), Key::of("create_ticket").target("case-9"), "Printer on fire".to_owned())
    ///     .contract(contract::Lookup)
    ///     .lookup(move |call, _title| {
    ///         let tracker = finding.clone();
    ///         async move { Ok(LookupResult::from(tracker.by_reference(call.key()).await?)) }
    ///     })
    ///     .run(move |call, title| {
    ///         let tracker = opening.clone();
    ///         async move { Ok(Done::new(tracker.open(call.key(), &title).await?)) }
    ///     })
    ///     .await?;
    /// assert_eq!(ticket, 17);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Crash
    /// The executor keeps the last lookup of each name. A restart has none until the first effect of the name is run again; that one
    /// brings the lookup back for all calls of the name that earlier processes left behind and this one has taken up. Until then each of them is an open
    /// question, which the engine withdraws when the lookup is here. The lookup of one call may therefore be asked about another: it
    /// goes by the call and the arguments that it is given, and by nothing else that differs from call to call.
    pub fn effect<A, T>(&self, tenant: &Tenant, key: Key, args: A) -> InlineEffect<A, T>
    where
        A: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        InlineEffect {
            executor: self.clone(),
            tenant: tenant.clone(),
            key,
            args,
            class: EffectClass::InternalMutation,
            contract: None,
            retry: None,
            lookups: LookupPolicy::default(),
            retention: None,
            approval: None,
            rule: None,
            verdict: None,
            lookup: None,
            labels: Labels::default(),
        }
    }
}

impl<A, T> InlineEffect<A, T>
where
    A: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
{
    /// The offer of the provider: one of [`contract`](crate::tool::contract)'s types, or a [`Contract`] in full. Default: a lookup if the
    /// effect has one, and otherwise nothing, so that a person is asked about a call of unknown outcome.
    pub fn contract(mut self, contract: impl Into<Contract>) -> Self {
        self.contract = Some(contract.into());
        self
    }

    /// The class of the effect. Default: [`EffectClass::InternalMutation`].
    pub fn class(mut self, class: EffectClass) -> Self {
        self.class = class;
        self
    }

    /// The number and the pauses of its tries, and the timeout of one. Default: as its contract asks for.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The number, the pauses and the timeout of lookups before a person is asked.
    pub fn lookups(mut self, lookups: LookupPolicy) -> Self {
        self.lookups = lookups;
        self
    }

    /// The retention of its record. Default: as its class asks for.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Adds a label, by which the call's record is listed and erased: see [`ToolRequest::label`](super::ToolRequest::label).
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.add(name, value);
        self
    }

    /// The approval that the effect needs, and the content that it must be an approval of.
    pub fn approved_by(mut self, subject: ApprovalSubject, approval: &Approval) -> Self {
        self.approval = Some((subject, approval.clone()));
        self
    }

    /// Lets a policy of this name and version decide about the effect: see [`ApprovalPolicy`](crate::tool::ApprovalPolicy).
    /// A policy that [asks](Verdict::Ask) a person takes the decision of [`approved_by`](Self::approved_by). Without one
    /// the effect is refused with [`PersonNeeded`](crate::ledger::ApprovalError::PersonNeeded), which names the people.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use counterfoil::ledger::EffectClass;
    /// use counterfoil::tool::{Done, approval::Verdict, contract};
    /// use counterfoil::{Executor, Key, Tenant};
    ///
    /// let executor = Executor::in_memory().open().await?;
    /// let sent: u32 = executor
    ///     .effect(&Tenant::default(), Key::of("receipt").target("order-7"), "Thank you".to_owned())
    ///     .class(EffectClass::Notification)
    ///     .contract(contract::ReplaysKey)
    ///     .policy("transactional-mail", 1, |_text| Verdict::Allow)
    ///     .run(|_call, _text| async { Ok(Done::new(1)) })
    ///     .await?;
    /// assert_eq!(sent, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn policy(
        mut self,
        name: impl Into<String>,
        version: u32,
        policy: impl Fn(&A) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.rule = Some(ApprovalRule::Policy(PolicyVersion { name: name.into(), version }));
        self.verdict = Some(Arc::new(policy));
        self
    }

    /// Lets the effect go out without an approval, also if it is a notification or a deletion.
    pub fn without_approval(mut self) -> Self {
        self.rule = Some(ApprovalRule::None);
        self
    }

    /// The way to find out what became of a call, by [`Call::key`] or the id that the provider gave. It must change nothing.
    pub fn lookup<F, Fut>(mut self, lookup: F) -> Self
    where
        F: Fn(Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<LookupResult<T>, ToolError>> + Send + 'static,
    {
        self.lookup = Some(Arc::new(move |call, args| Box::pin(lookup(call, args))));
        self
    }

    /// Carries the effect out, or gives the first result back if it happened before. The closure is called once for each try.
    ///
    /// Dropping the future does not cut the call off: it goes on, and its outcome is recorded.
    ///
    /// # Errors
    /// [`CallError::NotDone`] with the outcome if there is no result, and [`CallError::Exec`] if the ledger did not answer.
    pub async fn run<F, Fut>(self, run: F) -> Result<T, CallError>
    where
        F: Fn(Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done<T>, ToolError>> + Send + 'static,
    {
        self.outcome(run).await?.into_output()
    }

    /// The same, with the [`Outcome`] as it is.
    pub async fn outcome<F, Fut>(self, run: F) -> Result<Outcome, ExecError>
    where
        F: Fn(Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done<T>, ToolError>> + Send + 'static,
    {
        let spec = Arc::new(self.spec()?);
        let Self { executor, tenant, key, args, approval, verdict, lookup, labels, .. } = self;
        labels.check().map_err(RequestError::Label)?;
        let core = executor.core();
        let kept = Kept { spec: spec.clone(), lookup: lookup.clone() };
        orphans::meet(core, Arc::new(kept))?;
        let (subject, approval) = approval.unzip();
        let run: Arc<RunFn<A, T>> = Arc::new(move |call, args| Box::pin(run(call, args)));
        let tool =
            core.registry.hand_out(Arc::new(Inline { spec, args, subject, verdict, run: Some(run), lookup }));
        let asker = Asker { approval, labels, ..Asker::default() };
        let op = Requested::of(core, &tenant, tool).await?.under(key.render()?, asker);
        executor.durable(op, Wait::ForOutcome).await
    }

    /// The declaration that a registered tool would make.
    fn spec(&self) -> Result<ToolSpec, ExecError> {
        let name = Name::new(self.key.kind()).map_err(|_| KeyError::Empty { part: "operation type" })?;
        let (class, offer) = match self.lookup {
            Some(_) => (ContractClass::Lookup, LookupOffer::Strong),
            None => (ContractClass::Blind, LookupOffer::None),
        };
        let mut contract = self.contract.clone().unwrap_or_else(|| Contract::new(class));
        if offer == LookupOffer::None || contract.lookup == LookupOffer::None {
            contract.lookup = offer;
        }
        let retry = self.retry.unwrap_or_else(|| RetryPolicy::of(&contract));
        let spec = ToolSpec::of(name, self.class, contract.settled_for(&retry), retry);
        let retention = self.retention.unwrap_or(spec.retention);
        let approval = self.rule.clone().unwrap_or_else(|| ApprovalRule::of(self.class));
        Ok(ToolSpec { lookups: self.lookups, retention, approval, ..spec })
    }
}

/// An effect of this name, for calls whose caller is gone.
struct Kept<A, T> {
    spec: Arc<ToolSpec>,
    lookup: Option<Arc<LookupFn<A, T>>>,
}

impl<A, T> Unprepared for Kept<A, T>
where
    A: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
{
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        let (spec, lookup) = (self.spec.clone(), self.lookup.clone());
        Ok(Arc::new(Inline { spec, args: input.decode()?, subject: None, verdict: None, run: None, lookup }))
    }

    fn check_output(&self, output: &Payload) -> Result<(), PayloadError> {
        output.decode::<T>().map(drop)
    }

    fn typed(&self) -> &dyn Any {
        self
    }
}

/// One call of an effect.
struct Inline<A, T> {
    spec: Arc<ToolSpec>,
    args: A,
    subject: Option<ApprovalSubject>,
    verdict: Option<Arc<VerdictFn<A>>>,
    /// Absent where the caller is gone.
    run: Option<Arc<RunFn<A, T>>>,
    lookup: Option<Arc<LookupFn<A, T>>>,
}

impl<A, T> Prepared for Inline<A, T>
where
    A: Serialize + Clone + Send + Sync + 'static,
    T: Serialize + Send + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn package(&self) -> Option<ApprovalSubject> {
        let whole =
            || self.verdict.as_ref().map(|_| ApprovalSubject::of(self.spec.name.as_str(), &self.args));
        self.subject.clone().or_else(whole)
    }

    fn verdict(&self) -> Option<Verdict> {
        Some(self.verdict.as_ref()?(&self.args))
    }

    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        canonical(&self.args, key)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move {
            let gone = || ToolError::new(ErrorKind::Validation, "its caller is gone: nothing was done");
            let run = self.run.as_ref().ok_or_else(gone)?;
            written(run(call.clone(), self.args.clone()).await?)
        })
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        let finding = self.lookup.as_ref()?(call.clone(), self.args.clone());
        Some(Box::pin(async move { found(finding.await?) }))
    }

    fn needs_caller(&self) -> bool {
        true
    }
}
