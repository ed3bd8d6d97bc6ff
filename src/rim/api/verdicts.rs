//! Verdicts of people: answers to questions, and decisions about approvals. The person is the caller, never a name in the body.
//! A verdict is about one thing, so the same verdict of the same person again is the first one, under any key.

use axum::{Extension, Json};
use serde::Deserialize;

use super::inspect::{OfApproval, OfQuestion};
use super::page::At;
use super::problem::{Failed, Problem};
use super::write::{Write, reasoned};
use crate::errors::ErrorCode;
use crate::exec::QuestionView;
use crate::flow::TenantClient;
use crate::guard::approval::Decided;
use crate::store::Resolution;

/// An answer to a question, in the form of a [`Resolution`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    reason: String,
    answer: Resolution,
}

/// A decision about one version of a package.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
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
    let answer = &write.body.answer;
    let given = client.answer(id, answer.clone(), &write.by).because(write.reason()).await;
    let unknown = || Failed::of(Problem::NotFound, format!("There is no {id} of this tenant."));
    let view = client.question(id).await?.ok_or_else(unknown)?;
    match given {
        Ok(()) => write.log("answer", id),
        Err(error) => {
            let is_first =
                |first: &crate::exec::QuestionAnswer| first.by == write.by && first.resolution == *answer;
            if error.code() != ErrorCode::Answer || !view.answer.as_ref().is_some_and(is_first) {
                return Err(error.into());
            }
        }
    }
    Ok(Json(view))
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
        decision.approve(&write.by).await?
    } else {
        decision.reject(&write.by, write.reason()).await?
    };
    write.log("decide", id);
    Ok(Json(decided))
}
