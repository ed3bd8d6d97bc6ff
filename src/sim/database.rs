//! The user's own tables in a simulation: a real SQLite database in memory, beside the simulated disk.
//!
//! The disk decides if a transaction took place: it did if its mark is durable, which is its checkpoint, or in the
//! [inbox](super::inbox) a slip. Its changes wait, uncommitted, until that is known, and the next process ends the
//! transaction that a dead process has left open.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Condvar, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};
use tokio::sync::{Mutex, MutexGuard};

use super::clock::SimClock;
use crate::clock::Clock;
use crate::id::Tenant;
use crate::payload::{Payload, Stored};
use crate::store::TransactionError;
use crate::store::own::{Transacted, Transacting, TransactionsOn, Unseen, Within, Work};
use crate::store::sqlite::{carry_out, failure, rollback, simulate, take_events};
use crate::store::{Change, Delivery, Known, OutboxEvent, PastStep, Step, Store, StoreError, Turns, Verdict};

/// The tables of a simulation, opened on first use. Like a disk they outlive every process.
#[derive(Clone, Default)]
pub(super) struct Tables(Arc<Mutex<Option<Open>>>);

pub(super) struct Open {
    pub(super) connection: SqliteConnection,
    /// The mark of a transaction that may have taken place, until its end is seen.
    mark: Option<Mark>,
    /// The number of slips that were written.
    pub(super) slips: u64,
}

/// The row that is on the disk if a transaction took place.
pub(super) enum Mark {
    /// The transaction's checkpoint, with its result.
    Step(Step),
    /// A record that is sealed in the transaction.
    Seal(Box<crate::ledger::Record>),
    /// A payload without other meaning, for a transaction without a run.
    Slip(Tenant, Payload),
}

impl Mark {
    async fn is_durable(&self, store: &dyn Store) -> Result<bool, StoreError> {
        match self {
            Self::Step(step) => {
                let history = store.run_history(&step.tenant, step.run, Turns::ALL).await?;
                let is_it =
                    |past: &&PastStep| (past.kind, &past.name, &past.id) == (step.kind, &step.name, &step.id);
                let durable = history.steps.iter().find(is_it).and_then(|past| past.value.as_ref());
                Ok(durable.is_some() && durable == step.value.as_ref())
            }
            Self::Seal(sealed) => {
                let found = store.record_at(&sealed.tenant, sealed.id).await?;
                let is_it = |found: &crate::ledger::Record| {
                    found.revision >= sealed.revision && found.response() == sealed.response()
                };
                Ok(found.as_ref().is_some_and(is_it))
            }
            Self::Slip(tenant, slip) => Ok(store.payload_find(tenant, slip.digest()).await?.is_some()),
        }
    }
}

/// The tables as one process sees them, with the disk that holds its checkpoints.
pub(super) struct Database {
    tables: Tables,
    disk: Arc<dyn Store>,
    clock: SimClock,
    /// The lock of the one writer in this process.
    writer: Mutex<()>,
}

/// The tables, held by one writer of one process.
pub(super) struct Held<'a> {
    tables: MutexGuard<'a, Option<Open>>,
    _writer: MutexGuard<'a, ()>,
}

impl Held<'_> {
    /// The tables, with the transaction that was begun.
    pub(super) fn open(&mut self) -> Result<&mut Open, StoreError> {
        self.tables.as_mut().ok_or(StoreError::Closed)
    }
}

/// The interval at which a process checks if the tables are free.
const BUSY: Duration = Duration::from_secs(1);
/// The same interval after a minute of waiting: a process that is paused for a day may hold the tables.
const STILL_BUSY: Duration = Duration::from_mins(10);

impl Tables {
    pub(super) fn on(&self, disk: Arc<dyn Store>, clock: SimClock) -> Database {
        Database { tables: self.clone(), disk, clock, writer: Mutex::default() }
    }

    /// Reads the tables after all processes have ended.
    pub(super) fn read<T, F>(&self, store: &dyn Store, read: F) -> Result<T, String>
    where
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>,
    {
        let asked = standing_still(async {
            let mut tables = self.0.lock().await;
            let open = ready(&mut tables, store).await.map_err(|error| error.to_string())?;
            read(&mut open.connection).await.map_err(|error| error.to_string())
        });
        asked
            .now_or_never()
            .unwrap_or_else(|| Err("it waits for something else than these tables".to_owned()))
    }
}

impl TransactionsOn<SqliteConnection> for Database {
    /// Runs a transaction as the real store does, except that a fenced worker is refused only at the end.
    fn transaction<'a>(
        &'a self,
        mut change: Change,
        mut step: Step,
        within: Within<'a>,
        work: Work<'a, SqliteConnection, Payload>,
    ) -> Transacting<'a, Unseen> {
        Box::pin(async move {
            let mut held = self.hold().await;
            change.steps = vec![step.clone()];
            let carried_out = self.carry_out(&mut held, &change, within, work).await?;
            let (open, (value, payload), events) = carried_out;
            change.events = events;
            step.value = Some(Stored::Inline(payload));
            change.steps = vec![step.clone()];
            match self.commit(open, Mark::Step(step), &[change]).await? {
                Verdict::Admitted => Ok(value),
                Verdict::Refused(refusal) => Err(TransactionError::Refused(refusal)),
            }
        })
    }

    /// Runs and seals a transaction as the real store does, except that a fenced worker is refused only at the end.
    fn sealed<'a>(
        &'a self,
        mark: &'a Change,
        within: Within<'a>,
        work: Work<'a, SqliteConnection, Change>,
    ) -> Transacting<'a, (Unseen, Change)> {
        Box::pin(async move {
            let mut held = self.hold().await;
            let (open, (value, seal), events) = self.carry_out(&mut held, mark, within, work).await?;
            let sealed = seal.record.clone().ok_or(StoreError::Closed)?;
            let written = [mark.clone(), Change { events, ..seal.clone() }];
            match self.commit(open, Mark::Seal(sealed), &written).await? {
                Verdict::Admitted => Ok((value, seal)),
                Verdict::Refused(refusal) => Err(TransactionError::Refused(refusal)),
            }
        })
    }

    fn process<'a>(
        &'a self,
        delivery: &'a Delivery,
        within: Within<'a>,
        work: Work<'a, SqliteConnection, Payload>,
    ) -> Transacting<'a, Result<Unseen, Known>> {
        Box::pin(self.process_message(delivery, within, work))
    }
}

impl Database {
    /// Runs a closure on the tables, in a transaction that is left open. Returns the events that the closure added.
    async fn carry_out<'o, V>(
        &self,
        held: &'o mut Held<'_>,
        mark: &Change,
        within: Within<'_>,
        work: Work<'_, SqliteConnection, V>,
    ) -> Transacted<(&'o mut Open, (Unseen, V), Vec<OutboxEvent>)> {
        let carried_out = standing_still(async {
            let open = self.begin(held).await?;
            let carried_out = carry_out(&mut open.connection, within, work).await?;
            let events = open.events(within.clock).await?;
            Ok((open, carried_out, events))
        });
        let carried_out = carried_out.await;
        if matches!(carried_out, Err(TransactionError::EndedInside)) {
            // The closure's own commit is durable: only the mark tells the next attempt so.
            let _ = self.disk.commit(std::slice::from_ref(mark)).await?;
        }
        carried_out
    }

    /// Waits until no other process holds the tables. A paused process may hold them. The wait polls, because
    /// processes affect one another only through time: a wake-up across processes would be noticed only at the other
    /// one's turn.
    pub(super) async fn hold(&self) -> Held<'_> {
        let writer = self.writer.lock().await;
        let began = self.clock.boot();
        loop {
            if let Ok(tables) = self.tables.0.try_lock() {
                return Held { tables, _writer: writer };
            }
            let is_long = began.until(self.clock.boot()) > Duration::from_mins(1);
            self.clock.sleep(if is_long { STILL_BUSY } else { BUSY }).await;
        }
    }

    /// The tables, with a new transaction.
    pub(super) async fn begin<'o>(&self, held: &'o mut Held<'_>) -> Result<&'o mut Open, StoreError> {
        let open = ready(&mut held.tables, &*self.disk).await?;
        open.connection.execute("BEGIN IMMEDIATE").await.map_err(|e| failure(&e))?;
        Ok(open)
    }

    /// The commit point: the transaction took place if these changes, which contain the mark, become durable.
    pub(super) async fn commit(
        &self,
        open: &mut Open,
        mark: Mark,
        changes: &[Change],
    ) -> Result<Verdict, StoreError> {
        open.mark = Some(mark);
        let verdicts = self.disk.commit(changes).await?;
        if let Some(refused) = verdicts.into_iter().find(|verdict| !verdict.is_admitted()) {
            return Ok(refused);
        }
        standing_still(open.end(true)).await?;
        Ok(Verdict::Admitted)
    }
}

/// The tables, with no transaction open.
async fn ready<'o>(tables: &'o mut Option<Open>, store: &dyn Store) -> Result<&'o mut Open, StoreError> {
    let open = match tables.take() {
        Some(open) => open,
        None => {
            let memory = SqliteConnectOptions::new().in_memory(true).disable_statement_logging();
            let mut connection = memory.connect().await.map_err(|e| failure(&e))?;
            simulate(&mut connection).await?;
            Open { connection, mark: None, slips: 0 }
        }
    };
    let open = tables.insert(open);
    let took_place = match &open.mark {
        Some(mark) => mark.is_durable(store).await?,
        None => false,
    };
    open.end(took_place).await?;
    Ok(open)
}

impl Open {
    /// The events that were added in the transaction: the outbox is on the disk, and is written with the mark, too.
    pub(super) async fn events(&mut self, clock: &dyn Clock) -> Result<Vec<OutboxEvent>, StoreError> {
        let events = take_events(&mut self.connection).await?;
        Ok(events.into_iter().map(|event| OutboxEvent { created_at: clock.now(), ..event }).collect())
    }

    async fn end(&mut self, took_place: bool) -> Result<(), StoreError> {
        if took_place {
            self.connection.execute("COMMIT").await.map_err(|e| failure(&e))?;
        } else {
            rollback(&mut self.connection).await?;
        }
        self.mark = None;
        Ok(())
    }
}

/// The time after which a statement is taken to wait for something else than the database: no statement takes so
/// long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs work to its end while this thread and the clock stand still until the database's own thread has finished.
/// Otherwise chance would decide which of the two continues first.
pub(super) async fn standing_still<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    poll_fn(move |cx| {
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(done);
            }
            if !bell.rings(cx.waker()) {
                return Poll::Pending; // the work waits for time to pass, or for another task
            }
        }
    })
    .await
}

/// The signal of the database's thread that it has finished.
#[derive(Default)]
struct Bell {
    state: std::sync::Mutex<Rung>,
    rang: Condvar,
}

#[derive(Default)]
struct Rung {
    rung: bool,
    /// The waker of a task that stopped waiting.
    gone: Option<Waker>,
}

impl Bell {
    /// Waits for the signal. If the signal does not come soon, `waker` is woken when it does.
    fn rings(&self, waker: &Waker) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rang.wait_timeout_while(state, PATIENCE, |state| !state.rung);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.rung {
            state.gone = Some(waker.clone());
        }
        std::mem::take(&mut state.rung)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let gone = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.rung = true;
            state.gone.take()
        };
        self.rang.notify_all();
        if let Some(waker) = gone {
            waker.wake();
        }
    }
}
