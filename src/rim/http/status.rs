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
use crate::ledger::{Key, OperationKey};

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

/// Answers 202 while the request is being handled, and then its response. A tenant sees only its own operations.
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
