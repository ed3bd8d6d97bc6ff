//! The reaction to a message that came in through a door, carried out once: in one transaction with the record of the
//! message, or under a record of its own.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exec::inbox::{
    InboxError, Message, Processed, delivery, known, may_be_tried, not_tried, process_once, turn,
};
use crate::exec::{Completion, Core, ExecError, Executor, Outcome, OwnConnection, ToolRequest, to_the_end};
use crate::flow::{Along, RunError, SendSignal, StartRun};
use crate::id::Tenant;
use crate::store::{Counting, Delivery, StoreError, TransactionError};

type Work<C> = Box<dyn for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(), String>> + Send>;
type Asked = Box<dyn FnOnce(String) -> BoxFuture<'static, Result<Along, RunError>> + Send>;

/// The reaction to a message, carried out once.
///
/// `C` is the connection of the ledger's own database: sqlx's `SqliteConnection` or `PgConnection`.
///
/// ```
/// use counterfoil::door::Reaction;
/// use sqlx::SqliteConnection;
///
/// let invoice = 17;
/// let paid = Reaction::transaction(move |db: &mut SqliteConnection| Box::pin(async move {
///     sqlx::query("INSERT INTO paid (invoice) VALUES (?)").bind(invoice).execute(db).await.map(drop)
/// }));
/// ```
#[must_use = "a reaction does nothing until its door is given it"]
pub struct Reaction<C>(Does<C>);

enum Does<C> {
    Nothing,
    Transaction(Work<C>),
    Along(Asked),
    Call(Box<ToolRequest>),
    Complete(Completion),
}

impl<C: OwnConnection> Reaction<C> {
    /// Records the message, and does nothing else.
    pub fn ignore() -> Self {
        Self(Does::Nothing)
    }

    /// Runs the closure in the ledger's own database, in one transaction with the record of the message. The closure
    /// has five seconds, and must leave the transaction open: no COMMIT, no ROLLBACK.
    pub fn transaction<E, F>(work: F) -> Self
    where
        E: Display + Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(), E>> + Send + 'static,
    {
        Self(Does::Transaction(Box::new(move |connection| {
            let working = work(connection);
            Box::pin(async move { working.await.map_err(|error| error.to_string()) })
        })))
    }

    /// Starts a run, in one transaction with the record of the message. A run that was started under the same
    /// [key](StartRun::key) with the same input is unchanged.
    pub fn start<O: DeserializeOwned + Send + 'static>(start: StartRun<O>) -> Self {
        Self(Does::Along(Box::new(move |_| Box::pin(start.along()))))
    }

    /// Sends a signal to a run, in one transaction with the record of the message. The signal has the id of the
    /// message, unless it has [one of its own](SendSignal::id).
    pub fn signal(signal: SendSignal) -> Self {
        Self(Does::Along(Box::new(move |message| Box::pin(async move { signal.along(&message).await }))))
    }

    /// Calls a tool under its guard, and records the message when the call is settled. A call of unknown outcome is
    /// an open question, and settles the message, too.
    pub fn call(request: ToolRequest) -> Self {
        Self(Does::Call(Box::new(request)))
    }

    /// Hands over the result of a call that its provider has [accepted](crate::tool::ToolError::accepted) and
    /// finished by itself, and records the message when the result is durable. A result that fits no call is an error
    /// of the message.
    ///
    /// ```
    /// use counterfoil::Completion;
    /// use counterfoil::door::Reaction;
    ///
    /// let rendered = Completion::done("render", "job-7", serde_json::json!({ "url": "https://cdn.example/7" }));
    /// let reaction: Reaction<sqlx::SqliteConnection> = Reaction::complete(rendered);
    /// ```
    pub fn complete(completion: Completion) -> Self {
        Self(Does::Complete(completion))
    }
}

/// The reason why a message must be delivered again: the message is not recorded as processed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReactionError {
    /// The reaction failed and was rolled back, or the ledger could not be written.
    #[error(transparent)]
    Inbox(#[from] InboxError<String>),
    /// The engine could not be reached.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The executor could not be reached.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Another message has the same call in progress, or the call may be tried again later.
    #[error("the call of this message is not settled yet: have the message delivered again [pending]")]
    Unsettled,
}

impl ReactionError {
    /// True if the message did not cause the error: the try is not counted. A database that refuses the commit of one
    /// message fails with another error, and that message is set aside in the end.
    const fn is_ours(&self) -> bool {
        match self {
            Self::Unsettled | Self::Run(RunError::Refused { .. }) => true,
            Self::Run(RunError::Store(error)) | Self::Inbox(InboxError::Store(error)) => is_away(error),
            Self::Exec(error) | Self::Run(RunError::Exec(error)) | Self::Inbox(InboxError::Exec(error)) => {
                match error {
                    ExecError::Store { source, .. } => is_away(source),
                    ExecError::Closed { .. } | ExecError::Unwritten { .. } => true,
                    _ => false,
                }
            }
            Self::Run(_) | Self::Inbox(_) => false,
        }
    }
}

/// True if the database takes no write at all for now.
const fn is_away(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Busy { .. }
            | StoreError::Full { .. }
            | StoreError::Unreachable { .. }
            | StoreError::Closed
    )
}

/// The note that is recorded with a message, and returned with each later delivery.
pub(super) trait Note: Serialize + DeserializeOwned + Clone + Send + 'static {}

impl<N: Serialize + DeserializeOwned + Clone + Send + 'static> Note for N {}

/// The addressee of a message: its consumer in the inbox of a tenant.
pub(super) struct Addressee {
    pub(super) tenant: Tenant,
    pub(super) consumer: String,
}

/// A message with the note that is recorded with it, and returned with each later delivery.
pub(super) struct Noted<N> {
    pub(super) message: Message,
    pub(super) note: N,
}

/// Carries out the reaction to a message, unless that is done. The reaction is made only for a message that is not known; an error in making it is a failed
/// try.
///
/// The work continues if the caller is dropped.
pub(super) async fn react<C, N, R, E>(
    executor: &Executor,
    to: Addressee,
    Noted { message, note }: Noted<N>,
    reaction: R,
) -> Result<Processed<N>, ReactionError>
where
    C: OwnConnection + 'static,
    N: Note,
    R: Future<Output = Result<Reaction<C>, E>> + Send + 'static,
    E: Display + Send,
{
    let core = executor.core();
    let mut delivery = delivery(core, &to.tenant, &to.consumer, message).map_err(InboxError::Name)?;
    // Of concurrent deliveries one continues. The others do not load the database until the outcome of that one is
    // known.
    let turn = loop {
        let turn = turn(core, &delivery).await;
        if let Some(known) = known(core, &delivery).await? {
            return Ok(known);
        }
        if let Some(turn) = turn {
            break turn;
        }
    };
    let is_counted = delivery.counting == Counting::First;
    if is_counted && !may_be_tried(core, &mut delivery).await? {
        let answered = "somebody has answered meanwhile: the message is tried when it is delivered again";
        return done::<C, N>(core, delivery, Err(answered.to_owned()), note).await;
    }
    let counted = is_counted.then(|| delivery.clone());
    let (counting, reacting, executor) = (core.clone(), core.clone(), executor.clone());
    let reacted = async move {
        let (core, turn) = (reacting, turn);
        match reaction.await.map_err(|error| error.to_string()) {
            Err(error) => done::<C, N>(&core, delivery, Err(error), note).await,
            Ok(Reaction(Does::Nothing)) => done::<C, N>(&core, delivery, Ok(()), note).await,
            Ok(Reaction(Does::Transaction(work))) => {
                let worked = process_once(&core, delivery, |connection: &mut C| {
                    let working = work(connection);
                    Box::pin(async move { working.await.map(|()| note) })
                });
                Ok(worked.await?)
            }
            Ok(Reaction(Does::Along(asked))) => along::<C, N>(&core, delivery, asked, note).await,
            Ok(Reaction(Does::Call(request))) => {
                drop(turn); // a call may take long, and has a key of its own
                let called = called(&executor, *request).await?;
                done::<C, N>(&core, delivery, called, note).await
            }
            Ok(Reaction(Does::Complete(completion))) => {
                let completed = match executor.complete(&to.tenant, completion).await {
                    Err(
                        error @ (ExecError::Store { .. }
                        | ExecError::Closed { .. }
                        | ExecError::Unwritten { .. }),
                    ) => return Err(error.into()),
                    completed => completed.map(drop).map_err(|error| error.to_string()),
                };
                done::<C, N>(&core, delivery, completed, note).await
            }
        }
    };
    // A message that came again was counted before its reaction, because a process may have died of it. It is not to be set
    // aside for what others did.
    to_the_end(&core.tracker, async move {
        let reacted: Result<Processed<N>, ReactionError> = reacted.await;
        if let (Some(counted), Err(error)) = (&counted, &reacted)
            && error.is_ours()
        {
            not_tried(&counting, counted).await;
        }
        reacted
    })
    .await
}

/// Records the message with the outcome of its reaction, which happened outside of the message's transaction.
async fn done<C: OwnConnection, N: Note>(
    core: &Arc<Core>,
    delivery: Delivery,
    became: Result<(), String>,
    note: N,
) -> Result<Processed<N>, ReactionError> {
    let recorded = process_once(core, delivery, |_: &mut C| Box::pin(async move { became.map(|()| note) }));
    Ok(recorded.await?)
}

/// Writes the engine's change in one transaction with the record of the message.
async fn along<C: OwnConnection, N: Note>(
    core: &Arc<Core>,
    mut delivery: Delivery,
    asked: Asked,
    note: N,
) -> Result<Processed<N>, ReactionError> {
    let along = match asked(delivery.message.clone()).await {
        Ok(along) if along.is_of(core) => along,
        Ok(_) => {
            let other = "the run is of another engine than the door, and not of the door's database";
            return done::<C, N>(core, delivery, Err(other.to_owned()), note).await;
        }
        // The failure is not the message's fault.
        Err(error @ (RunError::Store(_) | RunError::Exec(_))) => return Err(error.into()),
        Err(error) => return done::<C, N>(core, delivery, Err(error.to_string()), note).await,
    };
    delivery.along = Some(Box::new(along.change.clone()));
    let seal = note.clone();
    let written = process_once(core, delivery.clone(), |_: &mut C| Box::pin(async move { Ok(seal) })).await;
    match written {
        Ok(processed) => {
            if matches!(processed, Processed::Now(_)) {
                along.took_place().await;
            }
            Ok(processed)
        }
        Err(InboxError::Transaction(TransactionError::Refused(refusal))) => {
            let became = match along.was_before(refusal).await {
                Err(error @ (RunError::Store(_) | RunError::Refused { .. })) => return Err(error.into()),
                was => was.map_err(|error| error.to_string()),
            };
            delivery.along = None;
            done::<C, N>(core, delivery, became, note).await
        }
        Err(error) => {
            if matches!(error, InboxError::Store(_)) {
                along.perhaps();
            }
            Err(error.into())
        }
    }
}

/// The outcome of a settled call. An error of the message if nothing happened.
async fn called(executor: &Executor, request: ToolRequest) -> Result<Result<(), String>, ReactionError> {
    Ok(match executor.execute(request).await? {
        Outcome::Done(_)
        | Outcome::ResponseTooLarge(_)
        | Outcome::NeedsDecision { .. }
        | Outcome::Pending { .. }
        | Outcome::Compensated { .. }
        | Outcome::Abandoned { .. }
        | Outcome::Expired { .. } => Ok(()),
        Outcome::Failed(failure) => Err(failure.message),
        Outcome::Conflict(conflict) => {
            Err(format!("another call was made under this key before: {conflict:?}"))
        }
        Outcome::Refused(error) => Err(error.to_string()),
        Outcome::InProgress | Outcome::Deferred { .. } => return Err(ReactionError::Unsettled),
    })
}
