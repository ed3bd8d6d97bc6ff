//! The inbox: a message is processed once per consumer, in one transaction with what it changes (GUARD-5, REC-2).
//!
//! [`Executor::process_once`] runs a closure in the ledger's own database and records that the message is processed, in the
//! same transaction. A message that comes again is answered with the recorded result, also after a crash before it was
//! acknowledged; of two deliveries at once one is processed, and the other one waits for it.
//!
//! A closure that fails is rolled back. Each try is counted before it is made, so that a message which kills its process is
//! found out, too: after [so many](Message::tries) tries it is set aside, as an open question with the evidence. Answered
//! `again` it is tried again when it comes again; answered `skip` it is left out.
//!
//! A closure that ends the transaction by itself is not run a second time, for its changes may be durable: the message is set
//! aside at once.
//!
//! Where the effect is not in the ledger's database, guard it by a key made of consumer and message:
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
use crate::payload::{Payload, PayloadError};
use crate::store::own::{OwnConnection, Within};
use crate::store::{
    Counting, Delivery, Known, Question, QuestionKind, Resolution, SetAside, Store as _, StoreError,
    TransactionError, Verdict,
};

/// Other writers wait while a message is processed.
const LIMIT: Duration = Duration::from_secs(5);
/// No longer than this, in bytes.
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
    /// By the id that its sender has given it, the same in every delivery. Up to 255 bytes.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), version: None, tries: 5, counting: Counting::Before }
    }

    /// It brings this version of an aggregate: an event's sequence, say. One that is not newer than what the consumer has
    /// processed of it is answered [`Outdated`](Processed::Outdated), and not run.
    pub fn version(mut self, aggregate: impl Into<String>, version: i64) -> Self {
        self.version = Some((aggregate.into(), version));
        self
    }

    /// Tried so often in vain it is set aside; five times unless it is said, at least once.
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }

    /// When its try is counted.
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
    /// Its id; not its sequence, for an event that was processed out of turn is not outdated by itself.
    fn from(event: &super::outbox::Event) -> Self {
        Self::new(&event.id)
    }
}

/// What became of a message. Whatever it is, the message is done with and can be acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Processed<T> {
    /// It was processed just now.
    Now(T),
    /// It was processed before, with this result. Nothing was run.
    Before(T),
    /// It was processed before, and its [retention](super::inbox::MessageRetention) is over: the result is no longer kept. Nothing was
    /// run.
    Expired,
    /// The consumer has this version of its aggregate, or a newer one. Nothing was run.
    Outdated,
    /// The message was tried too often, or its closure ended the transaction by itself: this question is open. Nothing is run
    /// until it is answered.
    SetAside(QuestionId),
    /// Somebody has decided to leave it out.
    Dropped,
}

impl<T> Processed<T> {
    /// The result, of this delivery or an earlier one.
    pub fn result(self) -> Option<T> {
        match self {
            Self::Now(result) | Self::Before(result) => Some(result),
            _ => None,
        }
    }
}

/// Why a message was not processed. It is to be delivered again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError<E> {
    /// The closure failed: what it had changed was rolled back.
    #[error("the message was not processed: {0}; its changes were rolled back")]
    Failed(E),
    /// The transaction failed: what the closure had changed was rolled back.
    #[error(transparent)]
    Transaction(TransactionError<std::convert::Infallible>),
    /// A name of it cannot be one.
    #[error(transparent)]
    Name(#[from] IdError),
    /// Its result cannot be stored, or a stored one not be read as this type.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// This store has no transactions on such a connection: it is another database, or none.
    #[error("this store has no transactions on such a connection: it is another database, or none")]
    NoDatabase,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The question about it could not be opened.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// What the closure came to, on the way through the store.
pub(crate) enum Work<E> {
    Failed(E),
    Unstorable(PayloadError),
}

impl Executor {
    /// Processes a message once: runs the closure in one transaction with the record of it, unless it was processed before.
    ///
    /// The closure gets the connection, sqlx's `SqliteConnection` or `PgConnection` as the store is, and must leave the
    /// transaction open: no COMMIT, no ROLLBACK. One that ends it is not run again, and the message is
    /// [set aside](Processed::SetAside) at once. It has five seconds.
    ///
    /// # Errors
    /// Those after which the message is to be delivered again; it was not processed.
    ///
    /// # Crash
    /// Changes and record are both there, or neither; the try is counted.
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

/// What became of a message that nobody will process any more. It is read, and no try is counted.
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
        Some(Known::SetAside { .. }) | None => Ok(None),
    }
}

/// The turn of this delivery among those of one message that are here at once, until it is dropped. None if it was another one's: what
/// became of the message may be known by then.
#[cfg(feature = "_messages")]
pub(crate) async fn turn(core: &Core, delivery: &Delivery) -> Option<Slot> {
    let message = OperationKey::stored(format!("{}\0{}", delivery.consumer, delivery.message));
    core.messages.enter_free(&delivery.tenant, message, &*core.clock).await
}

/// Counts the try of a message before anybody looks into it. False if it is not to be tried.
#[cfg(feature = "_messages")]
pub(crate) async fn may_be_tried<E>(core: &Core, delivery: &mut Delivery) -> Result<bool, InboxError<E>> {
    let database = core.database.as_deref().ok_or(InboxError::NoDatabase)?;
    let known = database.inbox_count(delivery).await?;
    delivery.counting = Counting::Done;
    Ok(known.is_none())
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
    // Again where an answer says so, or another delivery of it has got in between; and not for ever.
    for _ in 0..3 {
        let Some(work_now) = work.take() else { return Err(StoreError::Closed.into()) };
        let database = core.database.as_deref().ok_or(InboxError::NoDatabase)?;
        let mut unused = Some(work_now);
        let slot = &mut unused;
        let inner = core.clone();
        let within = Within { limit: LIMIT, clock: &*core.clock };
        let processed = database
            .process(&delivery, within, move |connection: &mut C| {
                let running = slot.take().map(|work| work(connection));
                Box::pin(async move {
                    let Some(running) = running else { return std::future::pending().await }; // it is run once
                    let value = running.await.map_err(Work::Failed)?;
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
            // Not a failed try: whoever has it written finds out what is there already.
            Err(TransactionError::Refused(refusal)) if delivery.along.is_some() => {
                return Err(InboxError::Transaction(TransactionError::Refused(refusal)));
            }
            Err(error) => return failed(core, &delivery, error).await,
        };
        match known {
            Known::Processed(result) => return Ok(Processed::Before(result.decode()?)),
            Known::Expired => return Ok(Processed::Expired),
            Known::Outdated => return Ok(Processed::Outdated),
            Known::SetAside { tries, why } => match set_aside(core, &delivery, tries, &why).await? {
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

/// The closure failed, or its transaction: the evidence is kept, and after the last try somebody is asked.
async fn failed<T, E: Display>(
    core: &Core,
    delivery: &Delivery,
    error: TransactionError<Work<E>>,
) -> Result<Processed<T>, InboxError<E>> {
    let error = match error {
        TransactionError::Closure(Work::Failed(error)) => InboxError::Failed(error),
        TransactionError::Closure(Work::Unstorable(error)) => InboxError::Payload(error),
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
    match set_aside(core, delivery, tries, &why).await? {
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

/// Sees to it that somebody is asked, once, and does what was answered. Of two deliveries at once one may have failed for the
/// last time, and the other one be processed: then nobody is asked.
///
/// # Crash
/// The row names its question before that is opened: whoever comes next opens the same one.
async fn set_aside<E>(
    core: &Core,
    delivery: &Delivery,
    tries: i64,
    why: &SetAside,
) -> Result<Fate, InboxError<E>> {
    let database = core.database.as_deref().ok_or(InboxError::NoDatabase)?;
    let question_id = QuestionId(core.ids.next());
    let Some(id) = database.inbox_set_aside(delivery, tries, why, question_id).await? else {
        return Ok(Fate::Again);
    };
    let Some(asked) = core.group.escalation_find(&delivery.tenant, id).await? else {
        let question = question(core, delivery, id, tries, why);
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

fn question(core: &Core, delivery: &Delivery, id: QuestionId, tries: i64, why: &SetAside) -> Question {
    let Delivery { tenant, consumer, message, .. } = delivery;
    let question = match why {
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
    };
    tracing::error!(%tenant, consumer, message, escalation = %id, question, "message set aside");
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
