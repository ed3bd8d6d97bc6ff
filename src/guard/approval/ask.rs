//! Approval requests without a workflow: the caller asks again later, and finds the decision.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;

use super::decide::{Approvals, OpenReview, open_review};
use crate::exec::ExecError;
use crate::exec::approval::{next, opened, review_of};
use crate::id::{IdError, Name, checked};
use crate::ledger::{Approval, ApprovalSubject, Review, ReviewPolicy};
use crate::payload::{PayloadError, hex};
use crate::store::{Change, Refusal, StoreError, Verdict};

/// The prefix of the ids of reviews that belong to no run.
const ASKED: &str = "~asked/";

/// The reason why an approval was not requested. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskRefused {
    /// A review of another package is open under this id and version.
    #[error(
        "version {version} of {id:?} was asked about with another content: nobody was asked; ask about it as version {next}, and decisions \
         about the earlier one count no more [conflict]"
    )]
    Conflict {
        /// The id of the review.
        id: String,
        /// The version that was requested.
        version: u32,
        /// The next free version.
        next: u32,
    },
    /// A review of a later version exists.
    #[error("version {version} of {id:?} is superseded by version {by}: nobody was asked [conflict]")]
    Superseded {
        /// The id of the review.
        id: String,
        /// The version that was requested.
        version: u32,
        /// The later version.
        by: u32,
    },
    /// The review policy leaves nobody who could approve.
    #[error("the approval of a {what} cannot be asked for: {why} [declaration]")]
    Undecidable {
        /// The subject of the approval.
        what: String,
        /// The reason why no approval is possible.
        why: &'static str,
    },
    /// The id is empty or too long.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The package has no JSON form.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The ledger refused the change.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The store failed. The review may have been written: the same request again returns it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request for an approval. Nothing happens before it is awaited; then the review is durable.
#[must_use = "nobody is asked until it is awaited"]
pub struct Ask {
    approvals: Approvals,
    id: String,
    package: ApprovalSubject,
    policy: ReviewPolicy,
    version: u32,
    requested_by: Option<String>,
}

impl Approvals {
    /// Asks these people to approve exactly this package, without a run. One effect may be sent with the approval.
    /// The same request again, from any process, returns the same review with its current outcome.
    ///
    /// # Crash
    /// The review is one row. A request that was interrupted is repeated.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let dir = tempfile::tempdir()?;
    /// use counterfoil::{Executor, ApprovalSubject, Tenant, ledger::ReviewPolicy};
    ///
    /// let executor = Executor::sqlite(dir.path().join("agents.db")).open().await?;
    /// let approvals = executor.approvals(&Tenant::new("acme")?);
    /// let people = ReviewPolicy::by(["ann", "bob"]);
    /// let package = ApprovalSubject::of("refund", &("order/9", 1200));
    /// let asked = approvals.ask("order/9", package, people).await?;
    /// // … in the handler of a POST request:
    /// approvals.decide(&asked.id, asked.version).approve("ann").await?;
    /// // … and later, wherever the call is made: `ToolRequest::approved_by`
    /// let approval = approvals.approval(&asked.id).await?;
    /// assert_eq!(approval.map(|approval| approval.by), Some("ann".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ask(&self, id: impl Into<String>, package: ApprovalSubject, policy: ReviewPolicy) -> Ask {
        Ask { approvals: self.clone(), id: id.into(), package, policy, version: 1, requested_by: None }
    }

    /// The approval, if enough people have approved the package under this id. The approval is checked again directly
    /// before a call is sent with it.
    pub async fn approval(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        let found = review_of(&self.core, &self.tenant, id).await?;
        Ok(found.and_then(|(_, review)| review.approval(id)))
    }
}

impl Ask {
    /// Sets the version of the package under this id, from 1. Decisions about an earlier version are refused from
    /// then on, and its approval is no longer valid.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets the name of the requester. The requester may reject the package, and not approve it.
    pub fn requested_by(mut self, who: impl Into<String>) -> Self {
        self.requested_by = Some(who.into());
        self
    }

    async fn ask(self) -> Result<OpenReview, AskRefused> {
        let Self { approvals, id, package, policy, version, requested_by } = self;
        let Approvals { core, tenant, .. } = &approvals;
        let what = package.what().to_owned();
        if let Some(why) = policy.objection(requested_by.as_deref()) {
            return Err(AskRefused::Undecidable { what, why });
        }
        checked("id of an approval", &id, Name::MAX_BYTES)?;
        let id = format!("{ASKED}{what}/{id}");
        let digest = hex(&package.digest()?.0);
        loop {
            let before = review_of(core, tenant, &id).await?;
            let now = core.now();
            if let Some((row, review)) = &before
                && review.version >= version
            {
                return if review.version > version {
                    Err(AskRefused::Superseded { id, version, by: review.version })
                } else if review.digest != digest {
                    Err(AskRefused::Conflict { id, version, next: version + 1 })
                } else {
                    Ok(open_review(row, review.clone().at(now)))
                };
            }
            let asked = Review::opened(&package, &digest, &policy, now)?;
            let review = Review { version, requested_by: requested_by.clone(), ..asked };
            let (row, review) = match before {
                Some((row, past)) => {
                    let review = review.following(past);
                    (next(row, &review, now), review)
                }
                None => (opened(tenant, &id, &review, now), review),
            };
            let change = Change { documents: vec![row.clone()], ..core.change(None) };
            match core.group.commit_one(change).await? {
                Verdict::Admitted => {
                    tracing::info!(%tenant, review = id, version, "approval requested");
                    return Ok(open_review(&row, review));
                }
                Verdict::Refused(Refusal::Exists | Refusal::Stale) => {} // another process asked at the same moment
                Verdict::Refused(refusal) => return Err(ExecError::Refused { key: id, refusal }.into()),
            }
        }
    }
}

impl IntoFuture for Ask {
    type Output = Result<OpenReview, AskRefused>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}
