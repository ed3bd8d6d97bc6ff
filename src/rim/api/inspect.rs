//! Questions and approvals, as they are read.

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

use super::page::{Asked, At, Page, Paged, Times, Window};
use super::problem::{Failed, Problem};
use crate::clock::Timestamp;
use crate::exec::QuestionView;
use crate::flow::TenantClient;
use crate::guard::approval::OpenReview;
use crate::id::{QuestionId, RunId, checked};
use crate::ledger::{Key, Review};
use crate::store::{PossibleAnswer, Question, QuestionKind};

/// A question in a list.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(in crate::rim) struct Listed {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub(super) id: QuestionId,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    kind: QuestionKind,
    question: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    run: Option<RunId>,
    #[serde(serialize_with = "crate::id::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    opened_at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    answers: &'static [PossibleAnswer],
    answered_by: Option<String>,
}

impl From<Question> for Listed {
    fn from(asked: Question) -> Self {
        let answers = asked.answers();
        let Question { id, kind, question, run, opened_at, answer, .. } = asked;
        Self { id, kind, question, run, opened_at, answers, answered_by: answer.map(|answer| answer.by) }
    }
}

/// The questions to be listed: the open ones, unless the answered ones are asked for.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct Which {
    /// The answered questions, in place of the open ones
    #[serde(default)]
    answered: bool,
    /// Only questions of this kind, such as `ambiguous` or `unknown_tool`
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    kind: Option<QuestionKind>,
    /// Only questions about this run
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    run: Option<RunId>,
}

/// The reviews to be listed: the open ones, unless the decided ones are asked for.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct WhichReviews {
    /// The approvals that were decided, have expired or were withdrawn, in place of the open ones
    #[serde(default)]
    decided: bool,
    /// Only approvals of this action
    what: Option<String>,
    /// Only approvals that this person may decide: those that name the person, or nobody
    reviewer: Option<String>,
    /// Only approvals that this run asked for
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    run: Option<RunId>,
}

impl WhichReviews {
    fn take(&self, open: &OpenReview) -> bool {
        let Review { what, reviewers, run, .. } = &open.review;
        self.what.as_ref().is_none_or(|wanted| wanted == what)
            && self.reviewer.as_ref().is_none_or(|name| reviewers.is_empty() || reviewers.contains(name))
            && self.run.is_none_or(|wanted| *run == Some(wanted))
    }
}

/// The question that a path names.
#[derive(Deserialize)]
pub(super) struct OfQuestion {
    question: String,
}

impl OfQuestion {
    pub(super) fn id(&self) -> Result<QuestionId, Failed> {
        Ok(self.question.parse()?)
    }
}

/// The review that a path names.
#[derive(Deserialize)]
pub(super) struct OfApproval {
    approval: String,
}

impl OfApproval {
    pub(super) fn id(&self) -> Result<&str, Failed> {
        checked("approval", &self.approval, Key::MAX_BYTES)?;
        Ok(&self.approval)
    }
}

/// The open or the answered questions. A page with a condition may be short and have a next page.
pub(super) async fn questions(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(which): Asked<Which>,
    Asked(times): Asked<Times>,
) -> Paged<Listed> {
    let all = if which.answered { client.answered_questions() } else { client.questions() };
    let after = window.after_id()?.unwrap_or(QuestionId(i64::MIN));
    let looked_at = window.looked_at(which.kind.is_some() || which.run.is_some() || times.is_narrow());
    let rows = all.after(after).limit(looked_at).await?;
    let takes = |asked: &Question| {
        which.kind.is_none_or(|kind| asked.kind == kind)
            && which.run.is_none_or(|run| asked.run == Some(run))
            && times.take(asked.opened_at)
    };
    let page = Page::sifted(rows, (looked_at, window.limit()), |asked| asked.id.to_string(), takes);
    Ok(Json(page.map(Listed::from)))
}

pub(super) async fn question(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfQuestion>,
) -> Result<Json<QuestionView>, Failed> {
    let id = of.id()?;
    let unknown = || Failed::of(Problem::NotFound, format!("There is no {id} of this tenant."));
    Ok(Json(client.question(id).await?.ok_or_else(unknown)?))
}

/// The reviews, each with the content that is to be approved. A page may be short and have a next page.
pub(super) async fn approvals(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(which): Asked<WhichReviews>,
) -> Paged<OpenReview> {
    let (after, limit) = (window.after()?, window.limit());
    let takes = |open: &OpenReview| which.take(open);
    let (items, next) = client.approvals().page_of(after, limit, which.decided, &takes).await?;
    Ok(Json(Page { items, next }))
}

pub(super) async fn approval(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfApproval>,
) -> Result<Json<OpenReview>, Failed> {
    let unknown = || Failed::of(Problem::NotFound, "There is no such review of this tenant.");
    Ok(Json(client.review(of.id()?).await?.ok_or_else(unknown)?))
}
