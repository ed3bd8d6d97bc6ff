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

pub(super) async fn begin(
    Extension(client): Extension<TenantClient>,
    Guard(guard): Guard,
    Body(begin): Body<Begin>,
) -> Next {
    Ok(Json(guard.begin(&client.core().1, begin).await?))
}

pub(super) async fn seal(
    Extension(client): Extension<TenantClient>,
    Guard(guard): Guard,
    Body(seal): Body<Seal>,
) -> Next {
    Ok(Json(guard.seal(&client.core().1, seal).await?))
}

pub(super) async fn reconcile(
    Extension(client): Extension<TenantClient>,
    Guard(guard): Guard,
    Body(report): Body<Reconcile>,
) -> Next {
    Ok(Json(guard.reconcile(&client.core().1, report).await?))
}

pub(super) async fn poll(
    Extension(client): Extension<TenantClient>,
    Guard(guard): Guard,
    Body(poll): Body<Poll>,
) -> Next {
    Ok(Json(guard.poll(&client.core().1, poll).await?))
}
