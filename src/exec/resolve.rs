//! An answer to an open question, to be awaited.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::answer::answer_alone;
use super::core::Core;
use super::decided::Said;
use super::outcome::{ExecError, unless_panicked};
use super::shield::to_the_end;
use crate::id::{QuestionId, Tenant};

/// An answer to an open question, to be awaited.
///
/// ```no_run
/// # use counterfoil::{Executor, QuestionId, Tenant, store::Resolution};
/// # async fn answers(executor: Executor, id: QuestionId) -> Result<(), Box<dyn std::error::Error>> {
/// let acme = Tenant::new("acme")?;
/// executor.answer(&acme, id, Resolution::DidNotHappen, "ann").because("not in the bank's portal").await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the answer is not given until this is awaited"]
pub struct GiveAnswer<E = ExecError> {
    by: By,
    tenant: Tenant,
    question: QuestionId,
    said: Said,
    error: PhantomData<fn() -> E>,
}

/// Takes answers to open questions, and resumes the work that waits for them.
pub(crate) trait Answers: Send + Sync {
    /// Gives the answer, and completes even if this future is dropped.
    fn resolve(
        self: Arc<Self>,
        tenant: Tenant,
        escalation: QuestionId,
        said: Said,
    ) -> BoxFuture<'static, Result<(), ExecError>>;
}

/// The part of the process that takes the answer.
enum By {
    Engine(Arc<dyn Answers>),
    Alone(Arc<Core>),
}

impl<E> GiveAnswer<E> {
    pub(crate) fn by_engine(
        engine: Arc<dyn Answers>,
        tenant: Tenant,
        question: QuestionId,
        said: Said,
    ) -> Self {
        Self { by: By::Engine(engine), tenant, question, said, error: PhantomData }
    }

    pub(crate) fn alone(core: Arc<Core>, tenant: Tenant, question: QuestionId, said: Said) -> Self {
        Self { by: By::Alone(core), tenant, question, said, error: PhantomData }
    }

    /// Adds the reason, which is recorded with the answer.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.said.because = Some(reason.into());
        self
    }
}

impl<E: From<ExecError> + 'static> IntoFuture for GiveAnswer<E> {
    type Output = Result<(), E>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { by, tenant, question, said, .. } = self;
        let answering = async move {
            match by {
                By::Engine(engine) => engine.resolve(tenant, question, said).await,
                By::Alone(core) => {
                    let tracker = core.tracker.clone();
                    let answering = async move { answer_alone(&core, &tenant, question, said).await };
                    to_the_end(&tracker, answering).await
                }
            }
        };
        Box::pin(async move { Ok(unless_panicked(&question, answering).await?) })
    }
}
