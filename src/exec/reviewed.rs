//! An undoing that reviewers decide about: the review that is opened beside the question, and that alone answers it.

use serde_json::json;

use super::approval::{opened, review_of};
use super::core::Core;
use super::outcome::ExecError;
use crate::ledger::{ApprovalSubject, Compensation, Record, Review, ReviewPolicy};
use crate::payload::{Payload, hex};
use crate::store::{Document, Question, QuestionKind};

/// The review of whether an effect may be undone, to be written with the question about it. `None` if the policy of the effect's tool
/// asks for no reviewers.
pub(crate) fn review_beside(
    core: &Core,
    record: &Record,
    question: &Question,
) -> Result<Option<Document>, ExecError> {
    let policy = core.registry.policy_of(record.operation.as_str());
    let (Some(Compensation::Reviewed { reviewers, quorum }), Some(run)) = (policy, question.run) else {
        return Ok(None);
    };
    let request = record.request.inline().map(Payload::value).transpose()?;
    let content =
        json!({"key": record.key.as_str(), "external_ref": record.external_ref, "request": request});
    let package = ApprovalSubject::of(format!("undoing of {}", record.operation), &content);
    let policy = ReviewPolicy::by(reviewers.iter().cloned()).quorum(*quorum);
    let digest = hex(&package.digest()?.0);
    let opened_now = Review::opened(&package, &digest, &policy, core.now())?;
    let id = Review::id_of(question.id);
    let (turn, question) = (record.owner.turn, Some(question.id));
    let review = Review { run: Some(run), turn, question, ..opened_now };
    Ok(Some(opened(&record.tenant, &id, &review, core.now())))
}

/// The open review that decides about this question instead of a single person, if there is one.
pub(super) async fn open_review(
    core: &Core,
    asked: &Question,
) -> Result<Option<(Document, Review)>, ExecError> {
    if asked.kind != QuestionKind::Compensation {
        return Ok(None);
    }
    let id = Review::id_of(asked.id);
    let found = review_of(core, &asked.tenant, &id).await;
    let found = found.map_err(|source| ExecError::Store { key: id, source })?;
    Ok(found.filter(|(_, review)| review.outcome.is_none()))
}
