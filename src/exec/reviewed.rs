//! An undoing that reviewers decide about: the review that is opened beside the question, and that alone answers it.

use serde_json::json;

use super::approval::{opened, review_of};
use super::core::Core;
use super::outcome::ExecError;
use crate::ledger::{Compensation, Package, Record, Review};
use crate::payload::{Payload, hex};
use crate::store::{Document, Escalation, EscalationKind, Resolution};

/// The review of whether an effect may be undone, to be written with the question about it. `None` if the policy of the effect's tool
/// asks for no reviewers.
pub(crate) fn review_beside(
    core: &Core,
    record: &Record,
    question: &Escalation,
) -> Result<Option<Document>, ExecError> {
    let policy = core.registry.policy_of(record.operation.as_str());
    let (Some(Compensation::Reviewed { reviewers, quorum }), Some(run)) = (policy, question.run) else {
        return Ok(None);
    };
    let request = record.request.inline().map(Payload::value).transpose()?;
    let content =
        json!({"key": record.key.as_str(), "external_ref": record.external_ref, "request": request});
    let package = Package::of(format!("undoing of {}", record.operation), &content);
    let review = Review {
        run,
        turn: record.owner.turn,
        version: 1,
        what: package.what().to_owned(),
        for_whom: None,
        digest: hex(&package.digest()?.0),
        content,
        reviewers: reviewers.clone(),
        quorum: *quorum,
        requested_by: None,
        expires_at: None,
        valid_ms: None,
        single_use: true,
        question: Some(question.id),
        votes: Vec::new(),
        outcome: None,
        used_by: None,
    };
    Ok(Some(opened(&record.tenant, &Review::id_of(question.id), &review, core.now())))
}

/// The open review that is to answer this question instead of a single person, if there is one. That an effect was undone by hand can
/// be said by anybody.
pub(super) async fn decided_by_reviewers(
    core: &Core,
    asked: &Escalation,
    resolution: &Resolution,
) -> Result<Option<String>, ExecError> {
    if asked.kind != EscalationKind::Compensation || resolution.result().is_some() {
        return Ok(None);
    }
    let id = Review::id_of(asked.id);
    let found = review_of(core, &asked.tenant, &id).await;
    let found = found.map_err(|source| ExecError::Store { key: id.clone(), source })?;
    Ok(found.filter(|(_, review)| review.outcome.is_none()).map(|_| id))
}
