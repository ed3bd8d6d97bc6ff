//! The check of an approval directly before an effect goes out. A stored result is returned without the check, because
//! its effect was sent already.

use super::core::Core;
use super::operation::Operation;
use super::outcome::{ExecError, failed};
use super::request_error::RequestError;
use crate::clock::Timestamp;
use crate::id::{Name, Tenant};
use crate::ledger::{Approval, ApprovalError, Record, Review, ReviewOutcome};
use crate::store::{Document, Store as _, StoreError};

/// The approval under which an attempt goes out, and the row that marks it as used, to be written together with the
/// attempt, if it is for a single effect.
pub(super) struct Cleared {
    pub(super) approval: Option<Box<Approval>>,
    pub(super) used: Option<Document>,
}

/// Checks that an effect may go out now. `recorded` is the record of the operation, if there is one.
pub(super) async fn approved(
    core: &Core,
    op: &Operation,
    recorded: Option<&Record>,
) -> Result<Cleared, ExecError> {
    let approval = op.may_go_out(recorded, core.now())?;
    let review = approval.as_ref().and_then(|approval| approval.review.clone());
    let Some((id, version)) = review else { return Ok(Cleared { approval, used: None }) };
    let found = review_of(core, &op.tenant, &id).await.map_err(|source| failed(&op.key, source))?;
    let what = || op.tool.spec().name.to_string();
    let (row, review) = found.ok_or_else(|| ApprovalError::Superseded { what: what(), version })?;
    let key = op.key.as_str();
    review.check_use(version, key, |by| core.may_decide(&op.tenant, by, &review))?;
    if !review.single_use || review.used_by.is_some() {
        return Ok(Cleared { approval, used: None });
    }
    let used = Review { used_by: Some(key.to_owned()), ..review };
    Ok(Cleared { approval, used: Some(next(row, &used, core.now())) })
}

/// The reason why the effect may not go out now, if its approval does not count. The review's row is read: the approval itself
/// knows neither of a later version nor of a reviewer's lost right.
pub(crate) async fn lacking(core: &Core, op: &Operation) -> Result<Option<ApprovalError>, ExecError> {
    match approved(core, op, None).await {
        Ok(_) => Ok(None),
        Err(ExecError::Request(RequestError::Approval(lacking))) => Ok(Some(lacking)),
        Err(error) => Err(error),
    }
}

/// The kind and the id of the document which says that a worker has a rule of its own, owned by [`Tenant::ledger`].
const RULE: (&str, &str) = ("reviewers", "rule");

impl Core {
    /// True if this process's rule lets the reviewer decide.
    pub(crate) fn may_decide(&self, tenant: &Tenant, reviewer: &str, review: &Review) -> bool {
        self.reviewers.as_ref().is_none_or(|rule| rule.may_decide(tenant, reviewer, review))
    }

    /// True if the review is to be decided by a rule of the host, and this process was not given that rule: under the
    /// default rule anybody with access to this process could decide.
    pub(crate) async fn lacks_the_rule(&self, review: &Review) -> Result<bool, StoreError> {
        if self.reviewers.is_some() || !review.reviewers.is_empty() {
            return Ok(false);
        }
        Ok(self.group.document_find(&Tenant::ledger(), RULE.0, RULE.1).await?.is_some())
    }

    /// The document which says that this worker has a rule of its own, if it has one and the document is not there yet.
    pub(super) async fn mark_of_rule(&self) -> Result<Option<Document>, StoreError> {
        let tenant = Tenant::ledger();
        if self.reviewers.is_none() || self.group.document_find(&tenant, RULE.0, RULE.1).await?.is_some() {
            return Ok(None);
        }
        Ok(Some(Document::first(&tenant, RULE.0, RULE.1.to_owned(), &true, self.now())))
    }
}

/// Loads a review and its row.
pub(crate) async fn review_of(
    core: &Core,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<(Document, Review)>, StoreError> {
    let found = core.group.document_find(tenant, Review::KIND, id).await?;
    found.map(|row| read(&row).map(|review| (row, review))).transpose()
}

/// Reads a review from its row.
pub(crate) fn read(row: &Document) -> Result<Review, StoreError> {
    let damaged = |error: serde_json::Error| StoreError::Corrupt {
        row: format!("document ({} {})", row.kind, row.id),
        detail: error.to_string(),
    };
    serde_json::from_str(&row.body).map_err(damaged)
}

/// The next revision of the row, holding `review`.
pub(crate) fn next(row: Document, review: &Review, at: Timestamp) -> Document {
    Document {
        revision: row.revision + 1,
        open: review.outcome.is_none(),
        body: body(review),
        updated_at: at,
        ..row
    }
}

/// The row of a review that is withdrawn without a decision. `None` if the review was decided.
pub(crate) fn withdrawn(row: Document, review: &Review, at: Timestamp) -> Option<Document> {
    review.ended(ReviewOutcome::Withdrawn).map(|over| next(row, &over, at))
}

/// The first row of an undecided review.
pub(crate) fn opened(tenant: &Tenant, id: &str, review: &Review, at: Timestamp) -> Document {
    Document { open: true, ..Document::first(tenant, Review::KIND, id.to_owned(), review, at) }
}

/// The name of the guard that owns reviews. A decision has it as its operation type.
pub(crate) fn kind() -> Name {
    Name::new(Review::KIND).unwrap_or_else(|_| unreachable!("a name like others"))
}

/// Renders a review as the body of its row.
fn body(review: &Review) -> String {
    serde_json::to_string(review).unwrap_or_else(|_| unreachable!("its parts are text, numbers and JSON"))
}
