//! The [guard service](crate::guard_service) over HTTP. A request is safe to repeat as it is: the key of a call and a permit are
//! what make it the same.

use axum::{Extension, Json};
use http::request::Parts;

use super::problem::{Failed, Problem};
use super::write::Body;
use crate::flow::TenantClient;
use crate::rim::guard_service::{Begin, GuardService, Poll, Reconcile, Seal, Step};

/// The guard service of this process.
pub(super) struct Guard(GuardService);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Guard {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failed> {
        let none = || Failed::of(Problem::NotFound, "This process serves no guard. Nothing was done.");
        parts.extensions.get::<Option<GuardService>>().cloned().flatten().map(Self).ok_or_else(none)
    }
}

/// The next step, as the answer to a client.
type Next = Result<Json<Step>, Failed>;

/// The handler of this request of the service.
macro_rules! step {
    ($($request:ident: $body:ty),+) => {
        $(pub(super) async fn $request(
            Extension(client): Extension<TenantClient>,
            Guard(guard): Guard,
            Body(body): Body<$body>,
        ) -> Next {
            Ok(Json(guard.$request(&client.core().1, body).await?))
        })+
    };
}

step!(begin: Begin, seal: Seal, reconcile: Reconcile, poll: Poll);
