//! The status URL of an operation: shows its outcome, and does nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};

use super::answer::{failed, response};
use super::config::Config;
use super::problem::{Details, Problem};
use crate::exec::{Executor, Outcome};
use crate::ledger::{Key, OperationKey, Record, escaped};

/// The status URL of an operation.
pub(super) fn url(config: &Config, key: &Key) -> Option<String> {
    let path = config.status_at.as_ref()?;
    let key = key.render().ok()?;
    Some(format!("{}/{}", path.trim_end_matches('/'), URL_SAFE_NO_PAD.encode(key.as_str())))
}

/// The operation that a request to a status URL asks for.
pub(super) fn asked(config: &Config, parts: &Parts) -> Option<OperationKey> {
    let path = config.status_at.as_ref()?;
    if parts.method != Method::GET {
        return None;
    }
    let name = parts.uri.path().strip_prefix(path.trim_end_matches('/'))?.strip_prefix('/')?;
    let key = URL_SAFE_NO_PAD.decode(name).ok().and_then(|key| String::from_utf8(key).ok());
    // A text that is not an encoded name becomes the name of no operation.
    Some(OperationKey::stored(key.unwrap_or_default()))
}

/// True if a request to a guarded route made this record, by its operation, which is method and template, and by its
/// key, which is given under that operation. The outcome of a call, a step or a run of the same ledger is not a
/// response, and is nothing for a client of this service.
fn is_of_a_route(record: &Record) -> bool {
    let operation = record.operation.as_str();
    let has_method = operation.split_once(' ').is_some_and(|(method, _)| {
        !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
    });
    let key = record.key.as_str();
    let is_given = key.strip_prefix(&escaped(operation)).is_some_and(|rest| rest.starts_with(":~key:"));
    has_method && (is_given || key.starts_with("~long:")) // a key that is too long is hashed as a whole
}

/// Answers 202 while the request is being handled, and then its response. A tenant sees only its own requests.
pub(super) async fn answer(
    executor: &Executor,
    config: &Config,
    parts: &Parts,
    key: &OperationKey,
) -> Response<Bytes> {
    let nowhere = || {
        Details::of(Problem::NoSuchOperation, "No operation of this name is recorded for you.")
            .response(&config.types)
    };
    let Some(scope) = (config.scope)(parts) else {
        let detail = "Nobody is authenticated for this request.";
        return Details::of(Problem::Unauthenticated, detail).response(&config.types);
    };
    match executor.core().find(&scope.tenant, key).await {
        Ok(Some(record)) if is_of_a_route(&record) => {}
        Ok(_) => return nowhere(),
        Err(error) => return failed(config, &error),
    }
    match executor.recorded_outcome(&scope.tenant, key).await {
        Ok(None) => nowhere(),
        Ok(Some(Outcome::InProgress | Outcome::Pending { .. })) => {
            let detail = "The request is being handled. Come again to this URL.";
            let details =
                Details::of(Problem::InProgress, detail).status(StatusCode::ACCEPTED).retry_after(1);
            details.response(&config.types)
        }
        Ok(Some(outcome)) => response(config, outcome, None, None),
        Err(error) => failed(config, &error),
    }
}
