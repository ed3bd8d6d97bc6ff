//! Verdicts of people: answers to questions, and decisions about approvals. The person is the caller, never a name in the body.
//! A verdict is about one thing, so the same verdict of the same person again is the first one, under any key.

use axum::{Extension, Json};
use serde::Deserialize;

use super::inspect::{OfApproval, OfQuestion};
use super::page::At;
use super::problem::{Failed, Problem};
use super::write::{Write, reasoned};
use crate::errors::ErrorCode;
use crate::exec::{QuestionAnswer, QuestionView};
use crate::flow::TenantClient;
use crate::guard::approval::Decided;
use crate::id::QuestionId;
use crate::store::Resolution;

/// An answer to a question, in the form of a [`Resolution`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct Answer {
    reason: String,
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    answer: Resolution,
}

/// A decision about one version of a package.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct Decision {
    reason: String,
    version: u32,
    approve: bool,
}

reasoned!(Answer, Decision);

/// Answers a question, and shows it.
pub(super) async fn answer(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfQuestion>,
    write: Write<Answer>,
) -> Result<Json<QuestionView>, Failed> {
    let id = of.id()?;
    let view = answered(&client, id, &write.body.answer, (&write.by, write.reason())).await?;
    write.log("answer", id);
    Ok(Json(view))
}

/// Gives a person's answer with its reason. The same answer of the same person again is the first one.
pub(in crate::rim) async fn answered(
    client: &TenantClient,
    id: QuestionId,
    answer: &Resolution,
    (by, reason): (&str, &str),
) -> Result<QuestionView, Failed> {
    let given = client.answer(id, answer.clone(), by).because(reason).await;
    let unknown = || Failed::of(Problem::NotFound, format!("There is no {id} of this tenant."));
    let view = client.question(id).await?.ok_or_else(unknown)?;
    let is_first = |first: &QuestionAnswer| first.by == by && first.resolution == *answer;
    match given {
        Err(error) if error.code() != ErrorCode::Answer || !view.answer.as_ref().is_some_and(is_first) => {
            Err(error.into())
        }
        _ => Ok(view),
    }
}

/// Decides about an approval, and says how the votes stand.
pub(super) async fn decide(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfApproval>,
    write: Write<Decision>,
) -> Result<Json<Decided>, Failed> {
    let id = of.id()?;
    let decision = client.decide(id, write.body.version);
    let decided = if write.body.approve {
        decision.approve(&write.by).because(write.reason()).await?
    } else {
        decision.reject(&write.by, write.reason()).await?
    };
    write.log("decide", id);
    Ok(Json(decided))
}
