//! The questions of a tenant, open or answered, listed to the end or page by page.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::core::Core;
use super::outcome::ExecError;
use crate::id::{QuestionId, Tenant};
use crate::store::{Question, QuestionCount, Store as _};

/// The maximum number of questions that one statement reads.
const PAGE: u32 = 1000;

/// The questions of a tenant, to be awaited: the oldest first, and all of them unless a [limit](Self::limit) is set.
/// They are the open ones, unless the [answered](super::Executor::answered_questions) ones were requested.
///
/// An open question that is answered before its page is read is left out. A question that is opened while pages are
/// read is in a later page.
#[must_use = "questions are not read until this is awaited"]
pub struct Questions<E = ExecError> {
    core: Arc<Core>,
    tenant: Tenant,
    after: QuestionId,
    limit: u32,
    answered: bool,
    error: PhantomData<fn() -> E>,
}

impl<E> Questions<E> {
    pub(crate) const fn of(core: Arc<Core>, tenant: Tenant) -> Self {
        let (after, limit) = (QuestionId(i64::MIN), u32::MAX);
        Self { core, tenant, after, limit, answered: false, error: PhantomData }
    }

    /// Selects the answered questions instead of the open ones.
    pub(crate) const fn answered(mut self) -> Self {
        self.answered = true;
        self
    }

    /// Begins after this question, the last one of the page before.
    pub const fn after(mut self, last: QuestionId) -> Self {
        self.after = last;
        self
    }

    /// The maximum number of questions. A page with fewer questions is the last one.
    pub const fn limit(mut self, questions: u32) -> Self {
        self.limit = questions;
        self
    }

    async fn read(self) -> Result<Vec<Question>, ExecError> {
        let (mut read, mut after, mut left) = (Vec::new(), self.after, self.limit);
        while left > 0 {
            let (group, limit) = (&self.core.group, left.min(PAGE));
            let page = if self.answered {
                group.escalation_answered(&self.tenant, after, limit).await
            } else {
                group.escalation_open(&self.tenant, after, limit).await
            };
            let page = page.map_err(|source| ExecError::Store { key: self.tenant.to_string(), source })?;
            let Some(last) = page.last() else { break };
            after = last.id;
            left = left.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
            read.extend(page);
        }
        Ok(read)
    }
}

/// The number of a tenant's questions of each kind.
pub(crate) async fn count(core: &Core, tenant: &Tenant) -> Result<Vec<QuestionCount>, ExecError> {
    let counted = core.group.escalation_count(tenant).await;
    counted.map_err(|source| ExecError::Store { key: tenant.to_string(), source })
}

impl<E: From<ExecError> + 'static> IntoFuture for Questions<E> {
    type Output = Result<Vec<Question>, E>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.read().await?) })
    }
}
