//! The response for the ledger's decision.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde_json::Value;

use super::config::Config;
use super::problem::{Details, Problem};
use super::stored::StoredResponse;
use crate::exec::{Answer, ExecError, Outcome};
use crate::ledger::Diff;

/// The header that marks a response which was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The `Retry-After` of a request in progress, in seconds.
const SOON: u64 = 1;
/// The `Retry-After` of a request that waits for a person's answer, in seconds.
const LATER: u64 = 60;

/// The response to a request with this outcome. `answered` is the handler's response to this very request.
pub(super) fn response(
    config: &Config,
    outcome: Outcome,
    answered: Option<Response<Bytes>>,
    status_url: Option<&str>,
) -> Response<Bytes> {
    let details = match outcome {
        Outcome::Done(answer) => {
            return match answered {
                Some(response) if answer.first => response,
                _ => replayed(config, &answer),
            };
        }
        Outcome::Failed(failure) => match answered {
            Some(response) => return response,
            // Another request freed the key between two reads: this request may be sent again.
            None => Details::of(Problem::InProgress, failure.message).retry_after(SOON),
        },
        Outcome::InProgress | Outcome::Deferred { .. } | Outcome::Pending { .. } => {
            return in_progress(config, status_url);
        }
        Outcome::Conflict(diff) => conflict(config, &diff),
        Outcome::NeedsDecision { question } => {
            let detail = format!(
                "The handler of the first request under this key ended without an answer. Whether it took effect is the open \
                 question {question}. Nothing is done under this key until it is answered; come again with the same key."
            );
            Details::of(Problem::OutcomeUnknown, detail)
                .member("question", question.to_string())
                .retry_after(LATER)
        }
        Outcome::Abandoned { reason } => Details::of(Problem::Abandoned, reason),
        Outcome::Compensated { .. } => {
            let detail = "The request took effect, and its effect was undone since. To have it once more, send a new key.";
            Details::of(Problem::Undone, detail)
        }
        Outcome::ResponseTooLarge(_) => {
            let detail =
                "The request took effect, and its response is too large to be kept. It was not done again.";
            Details::of(Problem::ResponseGone, detail)
        }
        Outcome::Expired { .. } => {
            let detail = "The request was handled so long ago that its response is no longer kept. It was not done again.";
            Details::of(Problem::ResponseGone, detail)
        }
        Outcome::Refused(error) => Details::of(Problem::Misconfigured, error.to_string()),
    };
    details.response(&config.types)
}

/// The first response again, marked as replayed.
fn replayed(config: &Config, answer: &Answer) -> Response<Bytes> {
    let stored = answer.decode::<StoredResponse>().ok().and_then(StoredResponse::response);
    let mut response = stored.unwrap_or_else(|| written_by_hand(answer));
    if config.created_then_ok && !answer.first && response.status() == StatusCode::CREATED {
        *response.status_mut() = StatusCode::OK;
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// The response that a person gave as the answer to a question.
fn written_by_hand(answer: &Answer) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(answer.response.as_str().to_owned()));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a request whose first one is still being handled.
pub(super) fn in_progress(config: &Config, status_url: Option<&str>) -> Response<Bytes> {
    let detail = "The first request under this key is still being handled. Come again with the same key.";
    let details = Details::of(Problem::InProgress, detail).retry_after(SOON);
    if config.accepts() {
        let url = status_url.unwrap_or_default();
        return details
            .status(StatusCode::ACCEPTED)
            .member("status_url", url)
            .location(status_url)
            .response(&config.types);
    }
    details.response(&config.types)
}

fn conflict(config: &Config, diff: &Diff) -> Details {
    let detail =
        "The key was used before with another request. Nothing was done. Send a new key for a new request.";
    let details = Details::of(Problem::KeyReused, detail).status(config.conflict);
    // The values of the first request are shown to every client that has its key and its tenant.
    if config.shows_diff { details.member("diff", Value::clone(&diff.0)) } else { details }
}

/// The response if the ledger could not be read or written.
pub(super) fn failed(config: &Config, error: &ExecError) -> Response<Bytes> {
    let details = match error {
        ExecError::Request(_) | ExecError::Payload(_) => {
            Details::of(Problem::Misconfigured, error.to_string())
        }
        // The error's text contains names of hosts and files.
        _ => {
            let detail = "The ledger does not answer. Come again with the same key: nothing is done twice.";
            Details::of(Problem::Unavailable, detail).retry_after(SOON)
        }
    };
    details.response(&config.types)
}
