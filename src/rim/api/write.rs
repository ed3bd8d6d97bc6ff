//! A write: who makes it, under which key, for which reason, and what it says.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::caller::Caller;
use super::problem::{Failed, Problem};
use crate::id::checked;
use crate::payload;
use crate::rim::http::idempotency_key;

/// The maximum length of a reason, in bytes.
const REASON: usize = 4096;

/// A body with a reason.
pub(super) trait Reasoned: DeserializeOwned {
    fn reason(&self) -> &str;
}

/// Says that the field `reason` of these bodies is their reason.
macro_rules! reasoned {
    ($($body:ty),+) => {
        $(impl $crate::rim::api::write::Reasoned for $body {
            fn reason(&self) -> &str {
                &self.reason
            }
        })+
    };
}

pub(super) use reasoned;

/// A body with a reason and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct Bare {
    reason: String,
}

reasoned!(Bare);

/// A write of an authenticated caller.
pub(super) struct Write<T> {
    /// The name of the caller, whatever the body says.
    pub(super) by: String,
    /// The `Idempotency-Key`.
    pub(super) key: String,
    pub(super) body: T,
}

impl<T: Reasoned> Write<T> {
    pub(super) fn reason(&self) -> &str {
        self.body.reason()
    }

    /// Logs a write that was taken. Its reason is a person's own words, and stands in the ledger, which may encrypt them.
    pub(super) fn log(&self, action: &'static str, subject: impl std::fmt::Display) {
        self.logged(action, subject, None);
    }

    /// Logs a write whose reason stands nowhere else.
    pub(super) fn log_with_reason(&self, action: &'static str, subject: impl std::fmt::Display) {
        self.logged(action, subject, Some(self.reason()));
    }

    fn logged(&self, action: &'static str, subject: impl std::fmt::Display, reason: Option<&str>) {
        tracing::info!(by = self.by, action, %subject, reason, "write of the API taken");
    }
}

/// A body of JSON.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failed> {
        let bytes = Bytes::from_request(request, state).await.map_err(|cut| match cut.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Failed::of(Problem::TooLarge, "A body has 1 MiB at most."),
            _ if is_late(&cut) => {
                Failed::of(Problem::TooSlow, "The body did not come in time. Nothing was done.")
            }
            _ => Failed::malformed(cut),
        })?;
        let text = std::str::from_utf8(&bytes).map_err(Failed::malformed)?;
        let body = payload::parse(text).map_err(Failed::malformed)?;
        serde_json::from_value(body).map(Self).map_err(Failed::malformed)
    }
}

/// True if the server has given up waiting for a body: the error of the connection says so, beneath those of the framework.
fn is_late(cut: &BytesRejection) -> bool {
    let first: &(dyn std::error::Error + 'static) = cut;
    std::iter::successors(Some(first), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::TimedOut)
}

impl<S: Send + Sync, T: Reasoned> FromRequest<S> for Write<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failed> {
        let nobody = || Failed::of(Problem::Unauthenticated, "Nobody is authenticated.");
        let by = request.extensions().get::<Caller>().ok_or_else(nobody)?.name.clone();
        let without =
            || Failed::malformed("Send an Idempotency-Key, the same in each retry. Nothing was done.");
        let key = idempotency_key(request.headers())?.ok_or_else(without)?;
        let Body(body) = Body::<T>::from_request(request, state).await?;
        checked("reason", body.reason(), REASON)?;
        Ok(Self { by, key, body })
    }
}
