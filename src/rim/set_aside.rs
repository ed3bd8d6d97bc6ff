//! The events of a tenant's outbox that could not be published and are set aside, as an operator sees them.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::exec::Core;
use crate::id::{QuestionId, Tenant, some_text};
use crate::store::{Store as _, StoreError};

/// An aggregate whose next event is set aside, with that event.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct SetAside {
    /// The question about the event: its answer decides what becomes of it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub(super) question: QuestionId,
    pub(super) aggregate: String,
    /// The id of the event.
    pub(super) event: Option<String>,
    /// The kind of the event.
    pub(super) kind: Option<String>,
    /// The instant at which the event was written (UTC).
    #[serde(serialize_with = "some_text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub(super) created_at: Option<Timestamp>,
    /// The number of times that the sink has refused the event.
    pub(super) refusals: u32,
    /// The number of events of the aggregate that wait behind it.
    pub(super) behind: i64,
}

/// A page in the order of the questions, from behind one on. An empty page is the end.
pub(super) async fn set_aside(
    core: &Core,
    tenant: &Tenant,
    after: QuestionId,
    limit: u32,
) -> Result<Vec<SetAside>, StoreError> {
    let mut page = Vec::new();
    for aside in core.group.outbox_all_set_aside(tenant, after, limit).await? {
        let Some(question) = aside.escalation else { continue };
        let event = core.group.outbox_at(tenant, &aside.name, aside.published + 1).await?;
        let (event, kind, created_at) = event
            .map_or((None, None, None), |event| (Some(event.id), Some(event.kind), Some(event.created_at)));
        let behind = aside.last - aside.published - 1;
        page.push(SetAside {
            question,
            aggregate: aside.name,
            event,
            kind,
            created_at,
            refusals: aside.refusals,
            behind,
        });
    }
    Ok(page)
}
