//! The engine as one tenant sees it.

use std::sync::Arc;

use serde::Serialize;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use serde::de::DeserializeOwned;

use super::error::RunError;
use super::handle::RunHandle;
use super::inner::Inner;
use super::start::StartRun;
use super::status::RunStatus;
use super::workflow::WorkflowFn;
use crate::exec::{
    Evidence, GiveAnswer, QuestionView, Questions, Said, count_questions, verify_call, view_evidence,
    view_question,
};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::exec::{OwnConnection, inbox};
use crate::id::{QuestionId, RunId, Tenant};
use crate::store::chain::{Anchor, ChainReport};
use crate::store::{QuestionCount, Resolution, RunCursor, RunFilter, RunPage, Store as _};

/// The engine as one tenant sees it.
#[derive(Clone)]
pub struct TenantClient {
    inner: Arc<Inner>,
    tenant: Tenant,
}

/// The inbox.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl TenantClient {
    /// Processes a message of this tenant once: see [`Executor::process_once`](crate::Executor::process_once).
    ///
    /// # Errors
    /// Those after which the message is to be delivered again; it was not processed.
    pub async fn process_once<C, T, E, F>(
        &self,
        consumer: &str,
        message: impl Into<inbox::Message>,
        work: F,
    ) -> Result<inbox::Processed<T>, inbox::InboxError<E>>
    where
        C: OwnConnection,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: std::fmt::Display + Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> futures_util::future::BoxFuture<'c, Result<T, E>> + Send,
    {
        let core = &self.inner.core;
        let delivery = inbox::delivery(core, &self.tenant, consumer, message.into())?;
        inbox::process_once(core, delivery, work).await
    }
}

impl TenantClient {
    pub(super) const fn new(inner: Arc<Inner>, tenant: Tenant) -> Self {
        Self { inner, tenant }
    }

    /// Starts a run of a registered workflow. Await it for its result, or [`StartRun::start`] it for a handle.
    pub fn run<W, I, O>(&self, _workflow: W, input: I) -> StartRun<O>
    where
        W: WorkflowFn<I, O>,
        I: Serialize + Send + Sync + 'static,
    {
        let workflow = self.inner.registered::<W>().cloned();
        StartRun::of(self.inner.clone(), self.tenant.clone(), workflow, input)
    }

    /// The same of another tenant.
    #[cfg(any(feature = "api", feature = "cli"))]
    pub(crate) fn of_tenant(&self, tenant: Tenant) -> Self {
        Self { inner: self.inner.clone(), tenant }
    }

    pub(super) fn parts(&self) -> (Arc<Inner>, Tenant) {
        (self.inner.clone(), self.tenant.clone())
    }

    /// The engine and the tenant of these operations.
    pub(crate) fn core(&self) -> (Arc<crate::exec::Core>, Tenant) {
        (self.inner.core.clone(), self.tenant.clone())
    }

    /// A run that was started before.
    pub fn handle<O>(&self, run: RunId) -> RunHandle<O> {
        RunHandle::of(self.inner.clone(), self.tenant.clone(), run)
    }

    /// The runs of this tenant, from behind `after` on: a page of at most a thousand. An empty page is the end.
    pub async fn runs(&self, after: Option<RunId>) -> Result<Vec<RunStatus>, RunError> {
        let after = after.unwrap_or(RunId(i64::MIN));
        let rows = self.inner.core.group.run_list(&self.tenant, after, 1000).await?;
        Ok(rows.into_iter().map(RunStatus::from).collect())
    }

    /// A page of the runs that a filter takes, from behind a cursor on, with at most `limit` runs.
    ///
    /// ```no_run
    /// # async fn stuck(engine: counterfoil::Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// use counterfoil::flow::{RunFilter, RunStateName};
    ///
    /// let acme = engine.tenant("acme")?;
    /// let (blocked, mut after) = (RunFilter::new().state(RunStateName::Blocked), None);
    /// loop {
    ///     let page = acme.list_runs(&blocked, after.as_ref(), 50).await?;
    ///     page.runs.iter().for_each(|run| println!("{run}"));
    ///     after = page.next;
    ///     if after.is_none() {
    ///         break;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the cursor belongs to a list in another order, or the store fails.
    pub async fn list_runs(
        &self,
        filter: &RunFilter,
        after: Option<&RunCursor>,
        limit: u32,
    ) -> Result<RunPage<RunStatus>, RunError> {
        after.map_or(Ok(()), |after| after.fits(filter))?;
        let page = self.inner.core.group.run_page(&self.tenant, filter, after, limit).await?;
        Ok(page.map(RunStatus::from))
    }

    /// The open questions, the oldest first: all of them, or a [page](Questions::limit).
    pub fn questions(&self) -> Questions<RunError> {
        Questions::of(self.inner.core.clone(), self.tenant.clone())
    }

    /// A question with everything that its answer takes: see [`Executor::question`](crate::Executor::question).
    pub async fn question(&self, question: QuestionId) -> Result<Option<QuestionView>, RunError> {
        Ok(view_question(&self.inner.core, &self.tenant, question).await?)
    }

    /// The evidence of the operation under this key: see [`Executor::evidence`](crate::Executor::evidence).
    pub async fn evidence(&self, key: &str) -> Result<Option<Evidence>, RunError> {
        Ok(view_evidence(&self.inner.core, &self.tenant, key).await?)
    }

    /// Compares the rows on which the evidence of the operation under this key rests with the ledger's
    /// [chain of evidence](crate::store::chain): see [`Executor::verify_chain`](crate::Executor::verify_chain). `None` if the
    /// ledger has no chain, or the tenant no such operation.
    pub async fn verify_evidence(
        &self,
        key: &str,
        anchor: Option<&Anchor>,
    ) -> Result<Option<ChainReport>, RunError> {
        Ok(verify_call(&self.inner.core, &self.tenant, key, anchor).await?)
    }

    /// The answered questions, the oldest first: also those that the engine [answered itself](crate::store::Answer::is_by_engine).
    pub fn answered_questions(&self) -> Questions<RunError> {
        self.questions().answered()
    }

    /// The number of questions of each kind, open and answered.
    pub async fn count_questions(&self) -> Result<Vec<QuestionCount>, RunError> {
        Ok(count_questions(&self.inner.core, &self.tenant).await?)
    }

    /// Answers an open question.
    ///
    /// A question lists [the answers that it takes](crate::store::Question::answers), each with its consequence, and refuses the others.
    ///
    /// About a call that can be looked up, [`DidNotHappen`](Resolution::DidNotHappen) takes effect once the lookup has answered and shows
    /// nothing. Until then the question stays open and says that an answer [waits](crate::store::Question::waiting).
    ///
    /// ```no_run
    /// # async fn bot(engine: counterfoil::Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// use counterfoil::store::Resolution;
    ///
    /// let acme = engine.tenant("acme")?;
    /// for question in acme.questions().await? {
    ///     println!("{}: {}", question.id, question.question);
    ///     for answer in question.answers() {
    ///         println!("  {answer}"); // `keep`: what is there stays, or was dealt with by hand
    ///     }
    /// }
    /// # let id = counterfoil::QuestionId(1);
    /// acme.answer(id, Resolution::Keep, "ann").because("the refund is under way").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Crash
    /// The answer and what follows from it are one transaction.
    pub fn answer(&self, escalation: QuestionId, resolution: Resolution, by: &str) -> GiveAnswer<RunError> {
        let said = Said::new(resolution, by);
        GiveAnswer::by_engine(self.inner.clone(), self.tenant.clone(), escalation, said)
    }
}
