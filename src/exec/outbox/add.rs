//! Adding events in a transaction of your own.

use std::future::Future;

use crate::id::{IdError, Tenant, checked};
use crate::payload::{Limits, Payload, PayloadError, Stored};
use crate::store::{OutboxEvent, StoreError};

/// The maximum length of a name, in bytes.
const LONGEST: usize = 255;

/// A new event, to be [added](add).
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
    /// The id of the event, the same for ever: an event that is added again is not a second event. Up to 255 bytes.
    pub id: String,
    /// The aggregate that the event is about. Up to 255 bytes.
    pub aggregate: String,
    /// The kind of the event. Up to 255 bytes.
    pub kind: String,
    /// The content of the event.
    pub payload: Payload,
}

/// The reason why an event was not added. In PostgreSQL a transaction with a failed statement can only be rolled back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// A name in the event is not a valid name.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The payload is too large.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// Another event has this event's id.
    #[error(
        "another event has the id {id}: an event that was added stands as it was; give this one an id of its own [conflict]"
    )]
    Conflict {
        /// The id of both events.
        id: String,
    },
    /// The database refused the write.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A connection to the ledger's own database, inside a transaction: sqlx's `SqliteConnection` or `PgConnection`. No
/// other type implements this trait.
pub trait OutboxConnection: Send {
    /// Writes the event and its large payload. False if another event has its id.
    #[doc(hidden)]
    fn write_event(
        &mut self,
        event: OutboxEvent,
        large: Option<Payload>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Adds an event in the transaction that is open on this connection: in the closure of
/// [`Ctx::transaction`](crate::Ctx::transaction), or in a transaction of your own on the ledger's database. The event
/// exists once that transaction is committed, and not before. Adding the same event again changes nothing.
///
/// Another transaction that adds to the same aggregate waits until this one has ended, so that the order of events is
/// the order of commits. Add events last, and to several aggregates in the order of their names. On PostgreSQL, the
/// engine's own writes wait in the same way if one of its runs emits to that aggregate.
///
/// On SQLite, begin a transaction of your own by `BEGIN IMMEDIATE`: one that has read before it writes fails if the engine has
/// written meanwhile (`SQLITE_BUSY_SNAPSHOT`, sqlite.org/isolation.html).
///
/// The payload is held to the default [`Limits`]. If the engine has [others](crate::flow::EngineBuilder::limits), use
/// [`add_within`].
///
/// After a transaction of your own, tell the engine by
/// [`Executor::notify_publisher`](crate::Executor::notify_publisher). Without that the event is published at the next
/// opportunity.
///
/// # Errors
/// [`AddError::Conflict`] if another event has this id. Roll back then, as after any other error.
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
    add_within(connection, tenant, event, &Limits::default()).await
}

/// Adds an event as [`add`] does, with the limits of payload sizes that the engine was
/// [given](crate::flow::EngineBuilder::limits): a connection does not know them.
///
/// # Errors
/// As those of [`add`].
///
/// ```
/// # use counterfoil::{Tenant, outbox::{self, AddError, NewEvent}, payload::Limits};
/// # use sqlx::SqliteConnection;
/// /// The limits that the engine is built with.
/// const LIMITS: Limits = Limits { inline_bytes: 16 * 1024, max_bytes: 8 * 1024 * 1024 };
///
/// async fn tell(db: &mut SqliteConnection, tenant: &Tenant, event: NewEvent) -> Result<(), AddError> {
///     outbox::add_within(db, tenant, event, &LIMITS).await
/// }
/// ```
pub async fn add_within<C: OutboxConnection>(
    connection: &mut C,
    tenant: &Tenant,
    event: NewEvent,
    limits: &Limits,
) -> Result<(), AddError> {
    let (event, large) = row(tenant, event, limits)?;
    let id = event.id.clone();
    if connection.write_event(event, large).await? { Ok(()) } else { Err(AddError::Conflict { id }) }
}

/// Adds an event as [`add_within`] does to an encrypted ledger, under the keys that the engine was
/// [given](crate::flow::EngineBuilder::encrypted): a connection does not know them. An event that is added by
/// [`add`] is read by the engine, too, but its payload is stored in the clear.
///
/// # Errors
/// As those of [`add`], and [`StoreError::NoKey`] if the tenant has no key.
///
/// ```
/// # use counterfoil::{Tenant, outbox::{self, AddError, NewEvent}, payload::Limits};
/// # use counterfoil::store::encryption::Keyring;
/// # use sqlx::SqliteConnection;
/// async fn tell(
///     db: &mut SqliteConnection,
///     keys: &Keyring,
///     tenant: &Tenant,
///     event: NewEvent,
/// ) -> Result<(), AddError> {
///     outbox::add_encrypted(db, tenant, event, &Limits::default(), keys).await
/// }
/// ```
#[cfg(feature = "encryption")]
pub async fn add_encrypted<C: OutboxConnection>(
    connection: &mut C,
    tenant: &Tenant,
    event: NewEvent,
    limits: &Limits,
    keys: &dyn crate::store::encryption::EncryptionKeys,
) -> Result<(), AddError> {
    let (event, large) = row(tenant, event, limits)?;
    for (event, large) in crate::store::encryption::encrypted_events(keys, &event, large.as_ref())? {
        if connection.write_event(event, large).await? {
            return Ok(());
        }
    }
    Err(AddError::Conflict { id: event.id })
}

/// The row of an event, and that of its large payload.
fn row(
    tenant: &Tenant,
    event: NewEvent,
    limits: &Limits,
) -> Result<(OutboxEvent, Option<Payload>), AddError> {
    let NewEvent { id, aggregate, kind, payload } = event;
    checked("id of an event", &id, LONGEST)?;
    checked("aggregate", &aggregate, LONGEST)?;
    checked("kind of an event", &kind, LONGEST)?;
    let payload = payload.within(limits)?;
    let is_large = payload.as_str().len() > limits.inline_bytes;
    let large = is_large.then(|| payload.clone());
    let payload = if is_large { Stored::At(payload.digest()) } else { Stored::Inline(payload) };
    let tenant = tenant.clone();
    let at = crate::clock::Timestamp(0); // the database tells the time
    Ok((OutboxEvent { tenant, id, aggregate, seq: 0, kind, payload, created_at: at }, large))
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
