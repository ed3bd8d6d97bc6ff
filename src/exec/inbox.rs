//! The inbox: each consumer processes a message once, in one transaction with its changes.
//!
//! [`Executor::process_once`] runs a closure in the ledger's own database and records in the same transaction that the
//! message is processed. A message that is delivered again is answered with the recorded result, also after a crash
//! before its acknowledgement. Of two deliveries at once, one is processed and the other one waits for it.
//!
//! The changes of a failed closure are rolled back. Each try is counted before it is made, so that a message that kills
//! its process is found, too: after [its maximum number](Message::tries) of tries it is set aside, as an open question
//! with the evidence. After the answer `again` its next delivery is tried; after the answer `skip` it is left out.
//!
//! A closure that ends the transaction by itself is not run a second time, because its changes may be durable: the
//! message is set aside at once.
//!
//! If the effect is outside the ledger's database, guard it by a key made of consumer and message:
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::{Executor, Key, Tenant};
//! let executor = Executor::sqlite(dir.path().join("agents.db")).open().await?;
//! let tenant = Tenant::new("acme")?;
//! let (consumer, message) = ("billing", "evt-17");
//! let key = Key::of(consumer).target(message);
//! executor.execute_once(&tenant, key, &"invoice 17", || async { Ok(17) }).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use super::consumers::MessageRetention;
use super::core::Core;
use super::executor::Executor;
#[cfg(feature = "_messages")]
use super::inflight::Slot;
use super::outcome::ExecError;
use crate::crash::CrashPoint;
use crate::id::{IdError, QuestionId, Tenant, checked};
#[cfg(feature = "_messages")]
use crate::ledger::OperationKey;
use crate::panics::{called, caught};
use crate::payload::{Payload, PayloadError};
use crate::store::own::{OwnConnection, Within};
use crate::store::{
    Aside, Counting, Delivery, Known, Question, QuestionKind, Resolution, SetAside, Store as _, StoreError,
    TransactionError, Verdict,
};

/// The time limit for processing one message. Other writers wait meanwhile.
const LIMIT: Duration = Duration::from_secs(5);
/// The maximum length of a name, in bytes.
pub(crate) const LONGEST: usize = 255;

/// A message as it is delivered.
///
/// ```
/// use counterfoil::inbox::Message;
/// let paid = Message::new("evt-17").version("order/9", 4).tries(3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Message {
    id: String,
    version: Option<(String, i64)>,
    tries: u32,
    pub(crate) counting: Counting,
}

impl Message {
    /// A message with the id that its sender has given it. The id is the same in every delivery, and has up to 255
    /// bytes.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), version: None, tries: 5, counting: Counting::Before }
    }

    /// Sets the version of the aggregate that the message brings, such as an event's sequence. If the consumer has
    /// processed this version or a newer one, the message is answered [`Outdated`](Processed::Outdated), and not run.
    pub fn version(mut self, aggregate: impl Into<String>, version: i64) -> Self {
        self.version = Some((aggregate.into(), version));
        self
    }

    /// Sets the number of failed tries after which the message is set aside. Default: 5; at least 1.
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }

    /// Sets the point at which a try is counted.
    #[cfg(feature = "_queue")]
    pub(crate) fn counting(mut self, counting: Counting) -> Self {
        self.counting = counting;
        self
    }
}

impl From<&str> for Message {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

impl From<String> for Message {
    fn from(id: String) -> Self {
        Self::new(id)
    }
}

impl From<&super::outbox::Event> for Message {
    /// A message with the event's id, but not its sequence: an event that was processed out of turn is not outdated by
    /// that.
    fn from(event: &super::outbox::Event) -> Self {
        Self::new(&event.id)
    }
}

/// The result of a delivery. In each case the message is done with and can be acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Processed<T> {
    /// The message was processed just now, with this result.
    Now(T),
    /// The message was processed before, with this result. Nothing was run.
    Before(T),
    /// The message was processed before, and its [retention](super::inbox::MessageRetention) is over: the result is no
    /// longer kept. Nothing was run.
    Expired,
    /// The consumer has this version of the message's aggregate, or a newer one. Nothing was run.
    Outdated,
    /// The message was tried too often, or its closure ended the transaction by itself: this question is open. The
    /// message is not run until the question is answered.
    SetAside(QuestionId),
    /// A person has decided to leave the message out.
    Dropped,
}

impl<T> Processed<T> {
    /// The result of this delivery or an earlier one, if there is one.
    pub fn result(self) -> Option<T> {
        match self {
            Self::Now(result) | Self::Before(result) => Some(result),
            _ => None,
        }
    }
}

/// The reason why a message was not processed. Have it delivered again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError<E> {
    /// The closure failed. Its changes were rolled back.
    #[error("the message was not processed: {0}; its changes were rolled back [transaction]")]
    Failed(E),
    /// The transaction failed. The closure's changes were rolled back.
    #[error(transparent)]
    Transaction(TransactionError<std::convert::Infallible>),
    /// A name in the message is not a valid name.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The result cannot be stored, or a stored result cannot be read as this type.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// This store has no transactions on such a connection: its database is of another kind, or it has none.
    #[error("this store has no transactions on such a connection: it is another database, or none [invalid]")]
    NoDatabase,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The question about the message could not be opened, or the closure [panicked](ExecError::Panicked): its changes
    /// were rolled back, and the try counts.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// The error of a closure, on its way through the store.
pub(crate) enum Work<E> {
    Failed(E),
    Panicked(String),
    Unstorable(PayloadError),
}

impl Executor {
    /// Processes a message once: runs the closure in one transaction with the message's record, unless the message was
    /// processed before.
    ///
    /// The closure gets the connection, sqlx's `SqliteConnection` or `PgConnection` depending on the store, and must
    /// leave the transaction open: no COMMIT, no ROLLBACK. A closure that ends the transaction is not run again, and
    /// the message is [set aside](Processed::SetAside) at once. The closure has five seconds.
    ///
    /// # Errors
    /// [`InboxError`] if the message was not processed. Have it delivered again.
    ///
    /// # Crash
    /// The changes and the record are both durable, or neither is. The try is counted.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let dir = tempfile::tempdir()?;
    /// use counterfoil::{Executor, Tenant, inbox::Processed};
    /// use sqlx::SqliteConnection;
    /// let executor = Executor::sqlite(dir.path().join("agents.db")).open().await?;
    /// let acme = Tenant::new("acme")?;
    /// for delivery in 1..=2 {
    ///     let done = executor.process_once(&acme, "billing", "evt-17", |db: &mut SqliteConnection| Box::pin(async move {
    ///         sqlx::query("CREATE TABLE invoice (number INTEGER)").execute(db).await?;
    ///         Ok::<_, sqlx::Error>(17)
    ///     }));
    ///     let expected = if delivery == 1 { Processed::Now(17) } else { Processed::Before(17) };
    ///     assert_eq!(done.await?, expected);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn process_once<C, T, E, F>(
        &self,
        tenant: &Tenant,
        consumer: &str,
        message: impl Into<Message>,
        work: F,
    ) -> Result<Processed<T>, InboxError<E>>
    where
        C: OwnConnection,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Display + Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, E>> + Send,
    {
        let delivery = delivery(&self.core, tenant, consumer, message.into())?;
        process_once(&self.core, delivery, work).await
    }
}

/// The result of a message that will not be processed any more. The message is only read, and no try is counted.
#[cfg(feature = "_messages")]
pub(crate) async fn known<T: DeserializeOwned, E>(
    core: &Core,
    delivery: &Delivery,
) -> Result<Option<Processed<T>>, InboxError<E>> {
    let database = core.database.as_deref().ok_or(InboxError::NoDatabase)?;
    match database.inbox_known(delivery).await? {
        Some(Known::Processed(result)) => Ok(Some(Processed::Before(result.decode()?))),
        Some(Known::Expired) => Ok(Some(Processed::Expired)),
        Some(Known::Outdated) => Ok(Some(Processed::Outdated)),
        Some(Known::SetAside(_)) | None => Ok(None),
    }
}

/// The turn of this delivery among concurrent deliveries of one message, held until it is dropped. `None` if another
/// delivery had the turn: the result of the message may be known by then.
#[cfg(feature = "_messages")]
pub(crate) async fn turn(core: &Core, delivery: &Delivery) -> Option<Slot> {
    let message = OperationKey::stored(format!("{}\0{}", delivery.consumer, delivery.message));
    core.messages.enter_free(&delivery.tenant, message, &*core.clock).await
}

/// Counts the try of a message before anything reads its content. False if the message is not to be tried.
#[cfg(feature = "_messages")]
pub(crate) async fn may_be_tried<E>(core: &Core, delivery: &mut Delivery) -> Result<bool, InboxError<E>> {
    let database = core.database.as_deref().ok_or(InboxError::NoDatabase)?;
    let known = database.inbox_count(delivery).await?;
    delivery.counting = Counting::Done;
    Ok(known.is_none())
}

/// Takes the count of a try back that failed through no fault of the message. If the ledger is away, the try stays counted.
#[cfg(feature = "_messages")]
pub(crate) async fn not_tried(core: &Core, delivery: &Delivery) {
    if let Some(database) = core.database.as_deref() {
        let _ = database.inbox_uncount(delivery).await;
    }
}

pub(crate) async fn process_once<C, T, E, F>(
    core: &Arc<Core>,
    delivery: Delivery,
    work: F,
) -> Result<Processed<T>, InboxError<E>>
where
    C: OwnConnection,
    T: Serialize + DeserializeOwned + Send + 'static,
    E: Display + Send + 'static,
    F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, E>> + Send,
{
    let mut work = Some(work);
    // Repeated at most three times: after the answer `again`, or if another delivery of the message came in between.
    for _ in 0..3 {
        let Some(work_now) = work.take() else { return Err(StoreError::Closed.into()) };
        let database = core.database.as_deref().ok_or(InboxError::NoDatabase)?;
        let mut unused = Some(work_now);
        let slot = &mut unused;
        let inner = core.clone();
        let within = Within { limit: LIMIT, clock: &*core.clock };
        let processed = database
            .process(&delivery, within, move |connection: &mut C| {
                // A panic of the closure fails this try, and not the task of whoever delivers the message.
                let running = slot.take().map(|work| called(move || work(connection)));
                Box::pin(async move {
                    let Some(running) = running else { return std::future::pending().await }; // the closure is run once
                    let value = caught(running.map_err(Work::Panicked)?).await;
                    let value = value.map_err(Work::Panicked)?.map_err(Work::Failed)?;
                    let payload = Payload::of(&value).and_then(|payload| payload.within(&inner.limits));
                    inner.registry.probe().at(CrashPoint::BeforeProcessed);
                    Ok((value, payload.map_err(Work::Unstorable)?))
                })
            })
            .await
            .ok_or(InboxError::NoDatabase)?;
        let known = match processed {
            Ok(Ok(value)) => {
                core.registry.probe().cross(CrashPoint::AfterProcessed).await;
                core.wake_sweeper();
                return Ok(Processed::Now(value));
            }
            Ok(Err(known)) => known,
            // Not a failed try: the caller finds the result that is already there.
            Err(TransactionError::Refused(refusal)) if delivery.along.is_some() => {
                return Err(InboxError::Transaction(TransactionError::Refused(refusal)));
            }
            Err(error) => return failed(core, &delivery, error).await,
        };
        match known {
            Known::Processed(result) => return Ok(Processed::Before(result.decode()?)),
            Known::Expired => return Ok(Processed::Expired),
            Known::Outdated => return Ok(Processed::Outdated),
            Known::SetAside(aside) => match set_aside(core, &delivery, &aside).await? {
                Fate::Asked(question) => return Ok(Processed::SetAside(question)),
                Fate::Dropped => return Ok(Processed::Dropped),
                Fate::Again => work = unused,
            },
        }
    }
    let detail = "other deliveries of this message got in between: have it delivered again".to_owned();
    Err(StoreError::Io { detail }.into())
}

pub(crate) fn delivery(
    core: &Core,
    tenant: &Tenant,
    consumer: &str,
    message: Message,
) -> Result<Delivery, IdError> {
    checked("consumer", consumer, LONGEST)?;
    checked("id of a message", &message.id, LONGEST)?;
    if let Some((aggregate, _)) = &message.version {
        checked("aggregate", aggregate, LONGEST)?;
    }
    let Message { id, version, tries, counting } = message;
    core.consumers.meet(consumer);
    Ok(Delivery {
        tenant: tenant.clone(),
        consumer: consumer.to_owned(),
        message: id,
        version,
        tries,
        along: None,
        counting,
        at: core.now(),
        #[cfg(feature = "sim")]
        by: core.fence,
    })
}

/// Keeps the error of a failed closure or transaction as evidence. After the last try a person is asked.
async fn failed<T, E: Display>(
    core: &Core,
    delivery: &Delivery,
    error: TransactionError<Work<E>>,
) -> Result<Processed<T>, InboxError<E>> {
    let error = match error {
        TransactionError::Closure(Work::Failed(error)) => InboxError::Failed(error),
        TransactionError::Closure(Work::Unstorable(error)) => InboxError::Payload(error),
        TransactionError::Closure(Work::Panicked(panic)) => {
            InboxError::Exec(ExecError::Panicked { key: delivery.message.clone(), panic })
        }
        TransactionError::Store(error) => return Err(error.into()), // not the message's fault
        other => InboxError::Transaction(other.map(|_| unreachable!("the closure's errors stand above"))),
    };
    let database = core.database.as_deref().ok_or(InboxError::NoDatabase)?;
    let detail = error.to_string();
    let tries = database.inbox_failed(delivery, &detail).await?;
    let why = if matches!(error, InboxError::Transaction(TransactionError::EndedInside)) {
        SetAside::EndedInside
    } else if tries < i64::from(delivery.tries) {
        return Err(error);
    } else {
        SetAside::TriedTooOften(Some(detail))
    };
    match set_aside(core, delivery, &Aside { tries, why }).await? {
        Fate::Asked(question) => Ok(Processed::SetAside(question)),
        Fate::Dropped => Ok(Processed::Dropped),
        Fate::Again => Err(error),
    }
}

enum Fate {
    Asked(QuestionId),
    Dropped,
    Again,
}

/// Sets a message aside that was not tried, with this question about it. `None` if a person has answered `again`, or if
/// the message was processed meanwhile: it may be tried.
#[cfg(feature = "webhook")]
pub(crate) async fn ask<T, E>(
    core: &Core,
    delivery: &Delivery,
    text: String,
) -> Result<Option<Processed<T>>, InboxError<E>> {
    let aside = Aside { tries: 0, why: SetAside::TriedTooOften(None) };
    Ok(match set_aside_with(core, delivery, &aside, text).await? {
        Fate::Asked(question) => Some(Processed::SetAside(question)),
        Fate::Dropped => Some(Processed::Dropped),
        Fate::Again => None,
    })
}

async fn set_aside<E>(core: &Core, delivery: &Delivery, aside: &Aside) -> Result<Fate, InboxError<E>> {
    set_aside_with(core, delivery, aside, text(delivery, aside)).await
}

/// Opens the question about a message once, and does what was answered. Of two deliveries at once, one may have failed
/// for the last time while the other one is processed: then nobody is asked.
///
/// # Crash
/// The message's row names its question before the question is opened: the next delivery opens the same one.
async fn set_aside_with<E>(
    core: &Core,
    delivery: &Delivery,
    aside: &Aside,
    text: String,
) -> Result<Fate, InboxError<E>> {
    let database = core.database.as_deref().ok_or(InboxError::NoDatabase)?;
    let question_id = QuestionId(core.ids.next());
    let Some(id) = database.inbox_set_aside(delivery, aside, question_id).await? else {
        return Ok(Fate::Again);
    };
    let Some(asked) = core.group.escalation_find(&delivery.tenant, id).await? else {
        let question = question(core, delivery, id, aside.tries, text);
        return match core.group.commit_one(core.change(None).escalation(question)).await? {
            Verdict::Admitted => Ok(Fate::Asked(id)),
            Verdict::Refused(refusal) => {
                Err(ExecError::Refused { key: delivery.message.clone(), refusal }.into())
            }
        };
    };
    match asked.answer.map(|answer| answer.resolution) {
        None => Ok(Fate::Asked(id)),
        Some(Resolution::Again) => {
            database.inbox_again(delivery, id).await?;
            Ok(Fate::Again)
        }
        Some(_) => Ok(Fate::Dropped),
    }
}

/// The text of the question about a message that is set aside for this reason.
fn text(delivery: &Delivery, Aside { tries, why }: &Aside) -> String {
    let Delivery { consumer, message, .. } = delivery;
    match why {
        SetAside::TriedTooOften(detail) => {
            let detail = detail.as_deref().unwrap_or("its process died in it, or it took too long");
            format!(
                "message {message} could not be processed by {consumer} in {tries} tries, the last time so: {detail}. It is \
                 set aside. Mend the cause, answer `again` and have it delivered again, or answer `skip` to leave it out?"
            )
        }
        SetAside::EndedInside => format!(
            "message {message}: the closure of {consumer} ended the transaction itself (COMMIT or ROLLBACK inside). What it \
             committed is durable, its result is not recorded, and it is not run again: the message is set aside. Take the \
             COMMIT or ROLLBACK out of the closure, and look by hand at what it has changed. Answer `skip` if nothing is \
             missing; otherwise undo what is there, answer `again` and have the message delivered again"
        ),
    }
}

fn question(core: &Core, delivery: &Delivery, id: QuestionId, tries: i64, question: String) -> Question {
    let Delivery { tenant, consumer, message, .. } = delivery;
    // The text of the question may show a part of the message.
    tracing::error!(%tenant, consumer, message_id = message, question = %id, tries, "message set aside");
    Question {
        id,
        tenant: tenant.clone(),
        record: None,
        run: None,
        kind: QuestionKind::Unprocessed,
        question,
        opened_at: core.now(),
        waiting: None,
        answer: None,
    }
}
