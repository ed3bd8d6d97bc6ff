//! The answer that a client gets for an operation.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResultType, ServerResult};
use serde_json::json;

use super::arguments::AGAIN;
use super::identity::Rule;
use crate::exec::Outcome;

/// The part of an answer beside the outcome.
pub(super) struct About<'a> {
    pub(super) key: &'a str,
    pub(super) rule: Rule,
    /// The number of the repetition that was asked for.
    pub(super) again: u32,
}

/// The field of an answer's `_meta` that tells of the operation.
const META: &str = "counterfoil";

/// The answer for an outcome.
pub(super) fn answer(outcome: &Outcome, about: &About<'_>) -> CallToolResult {
    let (mut result, first) = match outcome {
        Outcome::Done(answer) => {
            let recorded = answer.decode::<CallToolResult>();
            (recorded.unwrap_or_else(|_| of_text(&outcome.for_model().text, false)), answer.first)
        }
        _ => {
            let told = outcome.for_model();
            (of_text(&(told.text + &what_to_do(outcome)), told.is_error), false)
        }
    };
    if matches!(outcome, Outcome::Done(_)) && !first && about.rule != Rule::Request {
        let next = about.again + 1;
        result.content.push(ContentBlock::text(format!(
            "[counterfoil] This call was made before, and this is its first result: nothing was done now. \
             Only to do it once more on purpose, make the call with \"{AGAIN}\": {next} added."
        )));
    }
    result.result_type.get_or_insert(ResultType::COMPLETE);
    let meta = result.meta.get_or_insert_with(MetaObject::new);
    meta.0.insert(META.to_owned(), json!({ "operation": about.key, "first": first }));
    result
}

/// A server's result as it is passed on. The newest protocol demands that a result says that it is complete; servers of an older one do
/// not say it, and older clients are not told.
pub(super) fn passed_on(mut result: ServerResult) -> ServerResult {
    let kind = match &mut result {
        ServerResult::CallToolResult(result) => &mut result.result_type,
        ServerResult::GetPromptResult(result) => &mut result.result_type,
        ServerResult::ReadResourceResult(result) => &mut result.result_type,
        ServerResult::CompleteResult(result) => &mut result.result_type,
        _ => return result,
    };
    kind.get_or_insert(ResultType::COMPLETE);
    result
}

/// An answer that nothing was done, and why.
pub(super) fn refused(why: &str) -> CallToolResult {
    of_text(&format!("Nothing was done: {why}."), true)
}

/// An answer in words.
pub(super) fn of_text(text: &str, is_error: bool) -> CallToolResult {
    let content = vec![ContentBlock::text(text)];
    if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }
}

/// The steps that a person can take after an outcome, for a caller who passes it on.
fn what_to_do(outcome: &Outcome) -> String {
    match outcome {
        Outcome::NeedsDecision { question } => {
            format!(" An operator answers it with `counterfoil answer {question}`.")
        }
        _ => String::new(),
    }
}
