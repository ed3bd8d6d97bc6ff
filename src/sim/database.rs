//! The user's own tables in a simulation: a real SQLite database in memory, beside the simulated disk.
//!
//! Whether a transaction took place is the disk's to say: it did if its mark is durable, which is its checkpoint, or in the
//! [inbox](super::inbox) a slip. So its changes wait, uncommitted, until that is known, and what a dead process has left open
//! is ended by whoever comes next.

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
use crate::store::own::{Transacting, TransactionsOn, Unseen, Within, Work};
use crate::store::sqlite::{TransactionError, carry_out, failure, rollback, simulate, take_events};
use crate::store::{Change, Delivery, Known, OutboxEvent, PastStep, Step, Store, StoreError, Turns, Verdict};

/// The tables of a simulation, opened when they are first needed. Like a disk they outlive every process.
#[derive(Clone, Default)]
pub(super) struct Tables(Arc<Mutex<Option<Open>>>);

pub(super) struct Open {
    pub(super) connection: SqliteConnection,
    /// Of a transaction that may have taken place, until its end is seen.
    mark: Option<Mark>,
    /// So many slips were written.
    pub(super) slips: u64,
}

/// What is on the disk if a transaction took place.
pub(super) enum Mark {
    /// Its checkpoint, with its result.
    Step(Step),
    /// A record that is sealed in it.
    Seal(Box<crate::ledger::Record>),
    /// Where there is no run, a payload that is nothing else.
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

/// The tables as one process has them, and the disk that it writes its checkpoints to.
pub(super) struct Database {
    tables: Tables,
    disk: Arc<dyn Store>,
    clock: SimClock,
    /// Whoever writes in this process.
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

/// How long a process waits before it looks whether the tables are free.
const BUSY: Duration = Duration::from_secs(1);
/// The same after a minute: a process that is paused for a day may have them.
const STILL_BUSY: Duration = Duration::from_mins(10);

impl Tables {
    pub(super) fn on(&self, disk: Arc<dyn Store>, clock: SimClock) -> Database {
        Database { tables: self.clone(), disk, clock, writer: Mutex::default() }
    }

    /// Looks at them when all processes are gone.
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
    /// As on the real store, but that a fenced worker is refused only in the end.
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

    /// As on the real store, but that a fenced worker is refused only in the end.
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
    /// Carries a closure out in the tables, in a transaction that is left open; with the events that it has added.
    async fn carry_out<'o, V>(
        &self,
        held: &'o mut Held<'_>,
        mark: &Change,
        within: Within<'_>,
        work: Work<'_, SqliteConnection, V>,
    ) -> Result<(&'o mut Open, (Unseen, V), Vec<OutboxEvent>), TransactionError<Unseen>> {
        let carried_out = standing_still(async {
            let open = self.begin(held).await?;
            let carried_out = carry_out(&mut open.connection, within.limit, within.clock, work).await?;
            let events = open.events(within.clock).await?;
            Ok((open, carried_out, events))
        });
        let carried_out = carried_out.await;
        if matches!(carried_out, Err(TransactionError::EndedInside)) {
            // What the closure committed is there: the mark alone says so to whoever goes on.
            let _ = self.disk.commit(std::slice::from_ref(mark)).await?;
        }
        carried_out
    }

    /// Waits until nobody else has the tables. A process that is paused may have them: processes touch one another only
    /// through time, and one that woke another one up would be heard only if that had its turn later.
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

    /// The tables, with a transaction open.
    pub(super) async fn begin<'o>(&self, held: &'o mut Held<'_>) -> Result<&'o mut Open, StoreError> {
        let open = ready(&mut held.tables, &*self.disk).await?;
        open.connection.execute("BEGIN IMMEDIATE").await.map_err(|e| failure(&e))?;
        Ok(open)
    }

    /// The one instant: with these changes, which bring the mark, it has taken place, or it has not.
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
    /// The events that were added in the transaction: the outbox is on the disk, and written with the mark, too.
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

/// Longer than any statement takes: what waits for so long waits for something else than the database.
const PATIENCE: Duration = Duration::from_secs(10);

/// Carries work out and gives neither this thread nor the clock a chance to go on while the database's own thread
/// is at it: which of the two is first would be chance.
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
                return Poll::Pending; // it waits for time to pass, or for another task
            }
        }
    })
    .await
}

/// What the database's thread rings when it is done.
#[derive(Default)]
struct Bell {
    state: std::sync::Mutex<Rung>,
    rang: Condvar,
}

#[derive(Default)]
struct Rung {
    rung: bool,
    /// Whoever has lost patience.
    gone: Option<Waker>,
}

impl Bell {
    /// Waits for it. If it does not ring soon, `waker` is woken when it does.
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
