//! Events in a transaction of one's own.

use std::future::Future;

use crate::id::{IdError, Tenant, checked};
use crate::payload::{Limits, Payload, PayloadError, Stored};
use crate::store::{OutboxEvent, StoreError};

/// No longer than this, in bytes.
const LONGEST: usize = 255;

/// An event as it is [added](add).
///
/// ```
/// use counterfoil::{Payload, outbox::NewEvent};
/// # fn event() -> Result<NewEvent, counterfoil::PayloadError> {
/// let paid = NewEvent {
///     id: "order/17/paid".into(), // the same event on every retry
///     aggregate: "order/17".into(),
///     kind: "paid".into(),
///     payload: Payload::of(&1999)?,
/// };
/// # Ok(paid) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Which event it is, for ever: the same one again is not a second one. Up to 255 bytes.
    pub id: String,
    /// What it is about. Up to 255 bytes.
    pub aggregate: String,
    /// What happened. Up to 255 bytes.
    pub kind: String,
    /// What there is to say about it.
    pub payload: Payload,
}

/// Why an event was not added. In PostgreSQL a transaction of which a statement failed can only be rolled back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// A name of it cannot be one.
    #[error(transparent)]
    Name(#[from] IdError),
    /// It is too large.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// Another event has its id.
    #[error(
        "another event has the id {id}: an event that was added stands as it was; give this one an id of its own"
    )]
    Conflict {
        /// The id.
        id: String,
    },
    /// The database refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A connection to the ledger's own database, inside a transaction: sqlx's `SqliteConnection` or `PgConnection`. No other
/// type can be one.
pub trait OutboxConnection: Send {
    /// Writes the event, and the large payload that it names. False if another event has its id.
    #[doc(hidden)]
    fn write_event(
        &mut self,
        event: OutboxEvent,
        large: Option<Payload>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Adds an event in the transaction that is open on this connection: in the closure of
/// [`Ctx::transaction`](crate::Ctx::transaction), or in one of your own on the ledger's database. It is there when that
/// transaction is, and not before. The same event again changes nothing.
///
/// Whoever adds to the same aggregate waits until the transaction has ended, so that the events' order is that of the
/// commits. Add events last, and to several aggregates in the order of their names; on PostgreSQL, the engine's own writes
/// wait in the same way if one of its runs emits to that aggregate.
///
/// After a transaction of your own, tell the engine by [`Executor::notify_publisher`](crate::Executor::notify_publisher); it is
/// published at the next opportunity anyway.
///
/// # Errors
/// [`AddError::Conflict`] if another event has its id; then, as after any error, roll back.
///
/// ```
/// # use counterfoil::{Ctx, Failure, Payload, Tenant, outbox::{self, NewEvent}};
/// use sqlx::SqliteConnection;
///
/// async fn pay(ctx: Ctx, order: u32) -> Result<(), Failure> {
///     let tenant = ctx.tenant().clone();
///     ctx.transaction("pay", move |db: &mut SqliteConnection| Box::pin(async move {
///         // … your own tables …
///         let paid = NewEvent {
///             id: format!("order/{order}/paid"),
///             aggregate: format!("order/{order}"),
///             kind: "paid".into(),
///             payload: Payload::of(&order)?,
///         };
///         Ok(outbox::add(db, &tenant, paid).await?)
///     }))
///     .await
/// }
/// ```
pub async fn add<C: OutboxConnection>(
    connection: &mut C,
    tenant: &Tenant,
    event: NewEvent,
) -> Result<(), AddError> {
    let NewEvent { id, aggregate, kind, payload } = event;
    checked("id of an event", &id, LONGEST)?;
    checked("aggregate", &aggregate, LONGEST)?;
    checked("kind of an event", &kind, LONGEST)?;
    let limits = Limits::default();
    let payload = payload.within(&limits)?;
    let is_large = payload.as_str().len() > limits.inline_bytes;
    let large = is_large.then(|| payload.clone());
    let payload = if is_large { Stored::At(payload.digest()) } else { Stored::Inline(payload) };
    let tenant = tenant.clone();
    let at = crate::clock::Timestamp(0); // the database tells the time
    let event = OutboxEvent { tenant, id: id.clone(), aggregate, seq: 0, kind, payload, created_at: at };
    if connection.write_event(event, large).await? { Ok(()) } else { Err(AddError::Conflict { id }) }
}

#[cfg(feature = "sqlite")]
impl OutboxConnection for sqlx::sqlite::SqliteConnection {
    async fn write_event(&mut self, event: OutboxEvent, large: Option<Payload>) -> Result<bool, StoreError> {
        crate::store::sqlite::add_event(self, &event, large.as_ref()).await
    }
}

#[cfg(feature = "postgres")]
impl OutboxConnection for sqlx::postgres::PgConnection {
    async fn write_event(&mut self, event: OutboxEvent, large: Option<Payload>) -> Result<bool, StoreError> {
        crate::store::postgres::add_event(self, &event, large.as_ref()).await
    }
}
